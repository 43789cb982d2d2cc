//! The library is called with handles of GPUs.

use nvml_wrapper_sys::bindings as sys;

/// The library, loaded and initialised.
pub(crate) struct Raw {
    pub(super) lib: sys::NvmlLib,
}

/// Handle of a GPU or MIG instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gpu(pub(super) sys::nvmlDevice_t);

// SAFETY: a handle is a token that NVML looks up; NVML is thread-safe, also for calls on one device.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

macro_rules! call {
    ($raw:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match &$raw.lib.$function {
            // SAFETY: the signature is that of the header this symbol has had since it exists; all pointers handed over point to
            // memory of ours that outlives the call and is as large as the arguments say.
            Ok(function) => Code::check(unsafe { function($($argument),*) }),
            Err(_) => Err(Code::FUNCTION_NOT_FOUND),
        }
    };
}

pub(super) use call;
