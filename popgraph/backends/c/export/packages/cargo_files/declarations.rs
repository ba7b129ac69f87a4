//! Declarations of NAME.h, and the C that they declare. The crate `NAME` has a safe interface.
#![no_std]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

use core::ffi::{c_char, c_int, c_void};

CONSTANTS
/// A model; only its functions look inside.
#[repr(C)]
pub struct NAME {
    slots: [*mut c_void; SLOTS],
}

SIZESARRAYS/// A tensor: names, and numbers of elements and bytes.
#[repr(C)]
pub struct NAME_tensor {
    pub name: *const c_char,
    pub r#type: *const c_char,
    pub elements: usize,
    pub bytes: usize,
    pub rank: usize,
    pub shape: [usize; MACRO_RANK],
ENDS}

/// The description of the network.
#[repr(C)]
pub struct NAME_description {
    pub name: *const c_char,
    pub target: *const c_char,
    pub memory_bytes: usize,
    pub weights_bytes: usize,
    pub alignment: usize,
    pub input_count: usize,
    pub output_count: usize,
    pub inputs: *const NAME_tensor,
    pub outputs: *const NAME_tensor,
MORE}

extern "C" {
    pub static NAME_about: NAME_description;
    pub fn NAME_init(model: *mut NAME, memory: *mut c_void) -> c_int;
FUNCTIONS}
