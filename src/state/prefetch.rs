//! Asking the processor for memory that is needed soon. Unlike a read, the request keeps nothing
//! waiting, so that many can be under way at once.

#![expect(unsafe_code, reason = "there is no safe name for the instruction")]

/// Asks for the cache line of the element at `index`, even if there is none. Changes nothing that
/// can be seen.
#[inline]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    let element = slice.as_ptr().wrapping_add(index);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction reads and writes nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(element.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}
