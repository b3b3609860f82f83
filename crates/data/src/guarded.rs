//! Panics that are errors in the end: other people's readers of files panic at some that are damaged.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs somebody else's reader of a file; a panic becomes its message. What the reader left half done is not used again.
pub(crate) fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    let before = INSIDE.replace(true);
    let result = caught(read);
    INSIDE.set(before);
    result
}

/// Runs `f`; a panic becomes its message. What a panic leaves half-done inside of what `f` works on is the caller's affair, as
/// it would be with a lock that is poisoned.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload: Box<dyn Any + Send>| {
        let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
    })
}

/// Keeps panics of readers of files from being printed besides, for a binary that reports the errors they become; all
/// others are printed as before.
pub fn silence_reader_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !INSIDE.get() {
            print(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn panics_of_readers_are_not_printed_and_others_are() {
        let printed = Arc::new(AtomicUsize::new(0));
        let count = printed.clone();
        std::panic::set_hook(Box::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        silence_reader_panics();
        let number = 3;
        assert_eq!(guarded(|| -> u8 { panic!("page {number}") }), Err("page 3".into()));
        assert_eq!(guarded(|| guarded(|| -> u8 { panic!("a page") })), Ok(Err("a page".into())));
        assert_eq!((guarded(|| 5), printed.load(Ordering::Relaxed)), (Ok(5), 0));
        assert_eq!(caught(|| -> u8 { panic!("a bug") }), Err("a bug".into()));
        assert_eq!(printed.load(Ordering::Relaxed), 1);
        let _ = std::panic::take_hook();
    }
}
