//! Runs NAME on test vectors, and compares with the outputs of PopGraph's reference backend.
#![allow(non_snake_case, non_upper_case_globals)]

DATA
/// The bytes of a test vector as elements.
fn elements<T: Copy>(words: &'static [u64], count: usize) -> &'static [T] {
    assert!(count * size_of::<T>() <= size_of_val(words));
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), count) }
}

/// The largest difference, as a share of the largest that is wanted.
fn distance(found: &[f64], wanted: &[f64]) -> f64 {
    let (mut largest, mut apart) = (1e-6, 0.0);
    for (a, b) in found.iter().zip(wanted) {
        if a == b || (a.is_nan() && b.is_nan()) {
            continue;
        }
        assert!(a.is_finite() && b.is_finite());
        largest = b.abs().max(largest);
        apart = (a - b).abs().max(apart);
    }
    for b in wanted.iter().filter(|b| b.is_finite()) {
        largest = b.abs().max(largest);
    }
    apart / largest
}

#[test]
fn outputs_are_those_of_the_reference() {
    let mut model = NAME::Model::new();
RUNS}

#[test]
fn the_description_is_that_of_the_crate() {
    let about = NAME::Model::about();
    assert_eq!(about.memory_bytes, NAME::ffi::MACRO_MEMORY_BYTES);
    assert_eq!(about.input_count, COUNT);
}
