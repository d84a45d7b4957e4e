//! interrupt.rs - Ctrl-C and its like: what was measured so far is kept, a second one ends at once.

use crate::system::error_text;
use crate::text::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit status of a command that Ctrl-C ended, as shells have it.
pub const STATUS: u8 = 130;

pub struct Interrupt {
    flag: Arc<AtomicBool>,
    /// Readable as soon as the flag is set: a poll that waits for something else wakes up.
    pipe: UnixStream,
}

impl Interrupt {
    pub fn install() -> Result<Interrupt, Failure> {
        Interrupt::try_install()
            .map_err(|error| Failure::start(format!("no signal handler: {}", error_text(&error))))
    }

    fn try_install() -> io::Result<Interrupt> {
        let flag = Arc::new(AtomicBool::new(false));
        let (pipe, write_end) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag unset, and sets it.
            signal_hook::flag::register_conditional_shutdown(signal, i32::from(STATUS), Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(signal, write_end.try_clone()?)?;
        }
        Ok(Interrupt { flag, pipe })
    }

    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }

    pub fn fd(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }
}
