//! SUMMARY
//!
//! ```no_run
EXAMPLE//! ```
#![no_std]
#![allow(non_snake_case, non_upper_case_globals)]

extern crate alloc;

use alloc::alloc::{alloc, dealloc, handle_alloc_error, Layout};
USES
pub use NAME_sys as ffi;

/// The reason that a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An index in the inputs is out of range: outputs mean nothing.
    BadIndex,
    /// A size is out of range: nothing was done.
    BadSize,
    /// An array of this name has another number of elements: nothing was done.
    BadArray(&'static str),
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Error::BadIndex => f.write_str("an index in the inputs is out of range"),
            Error::BadSize => f.write_str("a size is out of range"),
            Error::BadArray(name) => write!(f, "{name} has another number of elements"),
        }
    }
}

impl core::error::Error for Error {}

SIZESARRAYS/// A model with memory of its own.
pub struct Model {
    raw: ffi::NAME,
    memory: core::ptr::NonNull<u8>,
}

// The memory belongs to the model alone, and the constants are never written.
unsafe impl Send for Model {}

const LAYOUT: Layout =
    match Layout::from_size_align(ffi::MACRO_MEMORY_BYTES, ffi::MACRO_ALIGNMENT) {
        Ok(layout) => layout,
        Err(_) => panic!(),
    };

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { dealloc(self.memory.as_ptr(), LAYOUT) }
    }
}

impl Model {
    /// A model as it was exported.
    pub fn new() -> Self {
        unsafe {
            let Some(memory) = core::ptr::NonNull::new(alloc(LAYOUT)) else {
                handle_alloc_error(LAYOUT)
            };
            let mut raw = core::mem::MaybeUninit::uninit();
            let code = ffi::NAME_init(raw.as_mut_ptr(), memory.as_ptr().cast());
            assert_eq!(code, ffi::MACRO_OK, "the constants are not aligned");
            Model { raw: raw.assume_init(), memory }
        }
    }

    /// The description of the network: names, types and shapes.
    pub fn about() -> &'static ffi::NAME_description {
        unsafe { &*core::ptr::addr_of!(ffi::NAME_about) }
    }
CALLSSTATESTOP}
