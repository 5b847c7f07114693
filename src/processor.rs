//! What a processor can do and the language has no safe name for.

#![expect(unsafe_code, reason = "there is no safe name for the instructions")]

/// Asks for the cache line of the element at `index`, even if there is none. Changes nothing that
/// can be seen. Unlike a read, the request keeps nothing waiting, so that many can be under way at
/// once.
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

/// Does `work`, a loop over numbers of 32 bits, with vectors of eight if the processor has them.
/// What comes of it is the same: only whole numbers are as exact in a vector as alone.
#[inline]
pub(crate) fn with_wide_vectors(work: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn wide(work: impl FnOnce()) {
            work();
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has just been asked.
            return unsafe { wide(work) };
        }
    }
    work();
}
