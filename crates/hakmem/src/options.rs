//! Options at run time.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec;
use core::fmt;
use core::ptr;

use crate::sys;

/// Why an option was not set, or could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// There is no option of that name.
    UnknownOption,
    /// The value is not a number.
    NotANumber,
    /// The number is smaller or larger than the option allows.
    OutOfRange,
    /// The option can be set in the environment before the program starts, and not while it runs.
    OnlyAtStart,
    /// Another error number of the C library, that a later version of HAKMEM may know.
    Other(i32),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownOption => formatter.write_str("no such option"),
            Error::NotANumber => formatter.write_str("the value is not a number"),
            Error::OutOfRange => formatter.write_str("the number is out of the option's range"),
            Error::OnlyAtStart => formatter.write_str("the option can only be set before the program starts"),
            Error::Other(number) => write!(formatter, "error {number}"),
        }
    }
}

impl core::error::Error for Error {}

// Linux's numbers, the same on x86-64 and aarch64.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;

/// Sets an option while the program runs: for all threads, from their next slow path on. The name is one of docs/options.md, with
/// or without `HAKMEM_`, in either case. The value is a number as text, in the option's own unit.
///
/// # Errors
///
/// Nothing is changed then. [`Error::UnknownOption`], [`Error::NotANumber`], [`Error::OutOfRange`], [`Error::OnlyAtStart`].
///
/// ```
/// use hakmem::{Error, option_get, option_set};
///
/// option_set("purge_delay_ms", "100")?;
/// assert_eq!(option_get("HAKMEM_PURGE_DELAY_MS")?, "100");
/// assert_eq!(option_set("purge_delay_ms", "soon"), Err(Error::NotANumber));
/// assert_eq!(option_set("background", "1"), Err(Error::OnlyAtStart));
/// # Ok::<(), Error>(())
/// ```
pub fn option_set(name: &str, value: &str) -> Result<(), Error> {
    let name = CString::new(name).map_err(|_| Error::UnknownOption)?;
    let value = CString::new(value).map_err(|_| Error::NotANumber)?;
    // SAFETY: both are strings of C's.
    match unsafe { sys::hak_option_set(name.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        ENOENT => Err(Error::UnknownOption),
        EINVAL => Err(Error::NotANumber),
        ERANGE => Err(Error::OutOfRange),
        EPERM => Err(Error::OnlyAtStart),
        number => Err(Error::Other(number)),
    }
}

/// An option's value as text, as it is now; names as for [`option_set`]. A text option that nobody has set is empty; bytes that
/// are not UTF-8 are replaced.
///
/// # Errors
///
/// [`Error::UnknownOption`].
pub fn option_get(name: &str) -> Result<String, Error> {
    let name = CString::new(name).map_err(|_| Error::UnknownOption)?;
    // SAFETY: nothing is written at null; then as many bytes as there are.
    unsafe {
        let length = sys::hak_option_get(name.as_ptr(), ptr::null_mut(), 0);
        if length == 0 {
            // An option without a value, or none: the empty text is a number of no option, so this changes nothing.
            let error = sys::hak_option_set(name.as_ptr(), c"".as_ptr());
            return if error == ENOENT { Err(Error::UnknownOption) } else { Ok(String::new()) };
        }
        // Another thread may set a longer number in between: the longest has 20 digits.
        let mut text = vec![0; length.max(20) + 1];
        let length = sys::hak_option_get(name.as_ptr(), text.as_mut_ptr().cast(), text.len());
        text.truncate(length.min(text.len() - 1));
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
