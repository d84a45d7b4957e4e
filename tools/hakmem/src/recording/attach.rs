//! attach.rs - a live process's recording: found, started, read, stopped.
//!
//! Rule: we write nothing but the control struct, and a request only where none waits. A visit of the process takes
//!       it; a process that does not allocate takes it when it next does, and we say so instead of waiting for ever.
//!       Who no longer wants what he asked for takes it back; whose sender was killed, --stop does.
//! Rule: a recording that was on before we came stays on after us; one that we began ends with us, also when we panic.

use super::locate;
use super::memory::{Memory, Process};
use super::raw::{self, Command, Control, LiveRow, Published, Tables};
use crate::text::{self, Failure};
use std::mem::{offset_of, size_of};
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub struct Attached {
    pub process: Process,
    pub address: u64,
}

/// How long a process may take for a request before we go on.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the process took a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Taken {
    Yes,
    /// It has not allocated since; it will when it does.
    NotYet,
}

/// What has become of a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    On,
    Off,
    /// The process became another program.
    Gone,
    Ended,
}

/// A process whose recording we began and did not end.
struct Begun {
    pid: u32,
    request: u32, // the number of our request, 0: not made yet
}

static BEGUN: Mutex<Vec<Begun>> = Mutex::new(Vec::new());

/// From here on a panic ends what we began, before it ends us: release builds unwind nothing.
pub fn end_with_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // A full disk behind standard output is a panic of println!, and no fault of ours.
        let refused = info.payload().downcast_ref::<String>().and_then(|said| text::output_refused(said));
        if refused.is_none() {
            before(info);
        }
        // Who panics while he holds it has written that he began, or not begun yet.
        let begun = BEGUN.try_lock().map(|mut begun| std::mem::take(&mut *begun)).unwrap_or_default();
        for begun in begun {
            let _ = Attached::open(begun.pid).and_then(|attached| attached.begun_end(begun.request));
        }
        if let Some(failure) = refused {
            text::line_to_stderr(&format!("hakmem: {}", failure.line));
            std::process::exit(failure.status.into());
        }
    }));
}

impl Attached {
    pub fn open(pid: u32) -> Result<Attached, Failure> {
        let process = Process::open(pid)?;
        let address = locate::published_address(&process)?;
        let attached = Attached { process, address };
        raw::published(&attached.process, address).map_err(|reason| attached.failure(&reason))?;
        Ok(attached)
    }

    pub fn published(&self) -> Result<Published, Failure> {
        raw::published(&self.process, self.address).map_err(|reason| self.lost(&reason))
    }

    pub fn state(&self) -> State {
        match self.published() {
            _ if !self.process.is_alive() => State::Ended,
            Ok(published) if published.is_on == 0 => State::Off,
            Err(_) if self.is_gone() => State::Gone,
            _ => State::On, // also where it may not be read for once
        }
    }

    /// After an exec there is another program's memory at our address, or none.
    fn is_gone(&self) -> bool {
        let mut magic = [0; 8];
        match self.process.read(self.address, &mut magic) {
            Ok(()) => u64::from_le_bytes(magic) != raw::MAGIC,
            Err(error) => error.raw_os_error() == Some(libc::EFAULT),
        }
    }

    pub fn tables(&self) -> Result<Tables, Failure> {
        Tables::read(&self.process, self.address).map_err(|reason| self.lost(&reason))
    }

    pub fn live(&self) -> Result<Vec<LiveRow>, Failure> {
        let published = self.published()?;
        raw::live_read(&self.process, &published, &mut 0).map_err(|reason| self.lost(&reason))
    }

    pub fn start(&self, rate_bytes: u64) -> Result<Taken, Failure> {
        if let Ok(mut begun) = BEGUN.lock() {
            begun.push(Begun { pid: self.process.pid, request: 0 });
        }
        self.request(Command::Start, rate_bytes)
    }

    pub fn stop(&self) -> Result<Taken, Failure> {
        let mut request = 0;
        if let Ok(mut begun) = BEGUN.lock() {
            let of_it = begun.iter().filter(|begun| begun.pid == self.process.pid);
            request = of_it.map(|begun| begun.request).next_back().unwrap_or(0);
            begun.retain(|begun| begun.pid != self.process.pid);
        }
        self.begun_end(request)
    }

    /// Where our own request to start waits still, it is taken back: nothing will begin.
    fn begun_end(&self, started: u32) -> Result<Taken, Failure> {
        self.published()?; // after an exec there is nothing of ours to be ended
        let control = self.control()?;
        if started == 0 || control.request != started || control.seen == started {
            return self.request(Command::Stop, 0);
        }
        self.take_back(&control)
    }

    /// Who takes it at this moment does it, finds one more request, as the numbers differ, and ends by that.
    fn take_back(&self, control: &Control) -> Result<Taken, Failure> {
        self.control_write(offset_of!(Control, command), &(Command::Stop as u32).to_le_bytes())?;
        self.control_write(offset_of!(Control, request), &control.seen.to_le_bytes())?;
        let taken = self.control_wait(PATIENCE, |control| control.request == control.seen)?;
        Ok(taken.map_or(Taken::NotYet, |_| Taken::Yes))
    }

    /// Takes back what another asked for and the process did not take in a second, as its sender may be gone;
    /// whether there was any.
    pub fn request_take_back(&self) -> Result<bool, Failure> {
        if self.control_wait(PATIENCE, |control| control.request == control.seen)?.is_some() {
            return Ok(false);
        }
        self.take_back(&self.control()?).map(|_| true)
    }

    fn request(&self, command: Command, rate_bytes: u64) -> Result<Taken, Failure> {
        // Another's request goes first.
        let before = self.control_wait(PATIENCE, |control| control.request == control.seen)?;
        let Some(before) = before else {
            let pid = self.process.pid;
            return Err(self.failure(&format!(
                "a request of another command waits there; the process has not allocated since; \
                 `hakmem record -p {pid} --stop` takes it back"
            )));
        };
        self.control_write(offset_of!(Control, command), &(command as u32).to_le_bytes())?;
        self.control_write(offset_of!(Control, rate_bytes), &rate_bytes.to_le_bytes())?;
        let number = match before.request.wrapping_add(1) {
            0 => 1,
            number => number,
        };
        if let (Command::Start, Ok(mut begun)) = (command, BEGUN.lock()) {
            let of_it = begun.iter_mut().filter(|begun| begun.pid == self.process.pid);
            of_it.for_each(|begun| begun.request = number);
        }
        // The call is a system call: what was written before it is there before it.
        self.control_write(offset_of!(Control, request), &number.to_le_bytes())?;
        match self.control_wait(PATIENCE, |control| control.seen == number)? {
            Some(control) if control.result < 0 => {
                let error = std::io::Error::from_raw_os_error(-control.result);
                Err(self.failure(&format!("it refuses: {}", crate::system::error_text(&error))))
            }
            Some(_) => Ok(Taken::Yes),
            None => Ok(Taken::NotYet),
        }
    }

    fn control(&self) -> Result<Control, Failure> {
        let mut bytes = [0; size_of::<Control>()];
        let at = self.address + offset_of!(Published, control) as u64;
        self.process.read(at, &mut bytes).map_err(|error| self.process.refusal(&error))?;
        Ok(<Control as raw::Plain>::from_bytes(&bytes))
    }

    fn control_write(&self, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        let at = self.address + (offset_of!(Published, control) + offset) as u64;
        self.process.write(at, bytes).map_err(|error| self.process.refusal(&error))
    }

    fn control_wait(
        &self,
        patience: Duration,
        done: impl Fn(&Control) -> bool,
    ) -> Result<Option<Control>, Failure> {
        let until = Instant::now() + patience;
        loop {
            let control = self.control()?;
            if done(&control) {
                return Ok(Some(control));
            }
            if Instant::now() > until {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Why what could be read before cannot be read now.
    fn lost(&self, reason: &str) -> Failure {
        match self.process.is_alive() && self.is_gone() {
            true => Failure::usage(format!("process {} became another program", self.process.pid)),
            false => self.failure(reason),
        }
    }

    pub fn failure(&self, reason: &str) -> Failure {
        let pid = self.process.pid;
        if !self.process.is_alive() {
            return Failure::usage(format!("process {pid} has ended"));
        }
        Failure::usage(format!("the recording of process {pid} cannot be read: {reason}"))
    }
}
