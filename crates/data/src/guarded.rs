//! Conversion of panics into errors: file readers from other crates panic on some damaged files.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a file reader from another crate; a panic becomes its message. The state of a reader that panicked is not used
/// again.
pub(crate) fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    let before = INSIDE.replace(true);
    let result = caught(read);
    INSIDE.set(before);
    result
}

/// Runs `f`; a panic becomes its message. The caller must deal with state that the panic left inconsistent, as with a
/// poisoned lock.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload: Box<dyn Any + Send>| {
        let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
    })
}

/// Stops the panic hook from printing panics of file readers, for a binary that reports the errors they become. All
/// other panics are printed as before.
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
