//! The blocks that the program holds, one by one.

use core::ffi::{c_int, c_void};
use core::ops::ControlFlow;

use crate::sys;

/// A block that the program holds, by whatever function of whichever language it has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct Held {
    /// Where it starts.
    pub start: *mut u8,
    /// Bytes that may be used of it; of a guarded block those that were asked for.
    pub bytes: usize,
    large: u32,
    guarded: u32,
}

impl Held {
    /// Above 32 KiB.
    pub fn is_large(&self) -> bool {
        self.large != 0
    }

    /// Alone between pages that nothing may touch (`HAKMEM_GUARD`).
    pub fn is_guarded(&self) -> bool {
        self.guarded != 0
    }
}

struct Call<F, B> {
    each: F,
    broken: Option<B>,
}

unsafe extern "C" fn call<B, F: FnMut(&Held) -> ControlFlow<B>>(
    held: *const Held,
    context: *mut c_void,
) -> c_int {
    // SAFETY: what walk() passed, and nobody else has; the library's for as long as this call.
    let (call, held) = unsafe { (&mut *context.cast::<Call<F, B>>(), &*held) };
    match (call.each)(held) {
        ControlFlow::Continue(()) => 0,
        ControlFlow::Break(value) => {
            call.broken = Some(value);
            1
        }
    }
}

/// Calls `each` for each block that the program holds, in no order, until it breaks.
///
/// Exact while no other thread allocates or frees. Otherwise it does no harm, but what is handed out or freed meanwhile may be
/// shown or not, and what is shown may be free by then. `each` may allocate and free; what it allocates may be shown to it, and
/// what it frees may be shown all the same. If it panics the process aborts.
///
/// ```
/// use std::ops::ControlFlow;
/// let text = String::from("a block of its own");
/// let mut bytes = 0;
/// let found = hakmem::walk(|held| {
///     bytes += held.bytes;
///     if held.start.cast_const() == text.as_ptr() { ControlFlow::Break(held.bytes) } else { ControlFlow::Continue(()) }
/// });
/// assert!(matches!(found, ControlFlow::Break(room) if room >= text.len()));
/// assert!(bytes >= text.len());
/// ```
pub fn walk<B>(each: impl FnMut(&Held) -> ControlFlow<B>) -> ControlFlow<B> {
    fn passed<B, F: FnMut(&Held) -> ControlFlow<B>>(call: &mut Call<F, B>) {
        // SAFETY: the function is of the type that the pointer is made of.
        unsafe { sys::hak_walk(self::call::<B, F>, (&raw mut *call).cast()) };
    }
    let mut call = Call { each, broken: None };
    passed(&mut call);
    call.broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}
