//! What errors say beside their words: codes that are not the server's own, and the place in a statement. The bindings know neither,
//! so both are heard, and told, while the server puts an error together: it asks whoever is at work for the context then.

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::PgLogLevel;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_void};

// Within the making of an error another guard would be in its way.
unsafe extern "C-unwind" {
    /// The code of the error that is being made, and places in the client's statement and in one of a function's own, from 1.
    fn geterrcode() -> i32;
    fn geterrposition() -> i32;
    fn getinternalerrposition() -> i32;
    /// Gives it another code, or a place in a statement.
    fn errcode(code: i32) -> i32;
    fn internalerrposition(position: i32) -> i32;
    fn internalerrquery(query: *const c_char) -> i32;
}

/// What was heard of an error.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    pub(super) code: i32,
    /// Characters from 1; 0 where it has no place.
    pub(super) position: i32,
}

/// Does something that can ask what was heard of the last error that the server made meanwhile, or of a notice after which there was
/// none.
pub(super) fn listening<T>(work: impl FnOnce(&Cell<Heard>) -> T) -> T {
    let heard = Cell::new(Heard::default());
    // SAFETY: it is read by the thread that writes it.
    let previous = unsafe { pg_sys::error_context_stack };
    let arg = (&raw const heard).cast_mut().cast::<c_void>();
    let mut here = pg_sys::ErrorContextCallback { previous, callback: Some(hear), arg };
    let _until = Until(previous);
    // SAFETY: it is taken off before it goes, whatever the work does.
    unsafe { pg_sys::error_context_stack = &raw mut here };
    work(&heard)
}

/// Takes what was put on the stack of contexts off again.
struct Until(*mut pg_sys::ErrorContextCallback);

impl Drop for Until {
    fn drop(&mut self) {
        // SAFETY: what was on it before is there still: it belongs to callers.
        unsafe { pg_sys::error_context_stack = self.0 };
    }
}

unsafe extern "C-unwind" fn hear(arg: *mut c_void) {
    // SAFETY: it is what `listening` put there; an error is being made.
    unsafe {
        let position = geterrposition().max(getinternalerrposition());
        (*arg.cast::<Cell<Heard>>()).set(Heard { code: geterrcode(), position });
    }
}

thread_local! {
    static TELLING: RefCell<Option<Told>> = const { RefCell::new(None) };
}

/// What is to be told of the next error.
struct Told {
    code: Option<i32>,
    place: Option<(CString, i32)>,
}

/// The context of an error of ours; it outlives what raises it.
static mut OURS: pg_sys::ErrorContextCallback = pg_sys::ErrorContextCallback {
    previous: std::ptr::null_mut(),
    callback: Some(tell),
    arg: std::ptr::null_mut(),
};

/// Raises an error, under a code that need not be one of the server's own, and with a place in a query, in characters from 1.
pub(crate) fn raise(report: ErrorReport, code: Option<i32>, place: Option<(&str, usize)>) -> ! {
    let place = place.and_then(|(query, at)| Some((CString::new(query).ok()?, i32::try_from(at).ok()?)));
    TELLING.set(Some(Told { code, place }));
    // SAFETY: one error is raised at a time, and whoever catches it restores the stack as it was for them.
    unsafe {
        OURS.previous = pg_sys::error_context_stack;
        pg_sys::error_context_stack = &raw mut OURS;
    }
    report.report(PgLogLevel::ERROR);
    unreachable!("an error was raised")
}

unsafe extern "C-unwind" fn tell(_: *mut c_void) {
    let Some(told) = TELLING.take() else { return };
    // SAFETY: an error is being made, and copies the text.
    unsafe {
        if let Some(code) = told.code {
            errcode(code);
        }
        if let Some((query, position)) = &told.place {
            internalerrposition(*position);
            internalerrquery(query.as_ptr());
        }
    }
}
