//! `hakmem record` and `hakmem dump`: what a running process allocates, where, and what lives, as a profile.
//!
//! record starts the recording, waits, reads, and ends it again; dump reads a recording that is going on. The process
//! is never stopped, and goes on as before when this command ends, however it ends.

use crate::output::{self, Output};
use crate::process;
use crate::profile::file;
use crate::profile::model::Profile;
use crate::recording::attach::{Attached, State, Taken};
use crate::recording::convert::{self, Subject, Tick};
use crate::recording::pages::{Census, Residence};
use crate::recording::raw::{Published, Tables};
use crate::recording::subject;
use crate::system;
use crate::text::{self, Failure};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// The process, which runs with the library
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,

    /// How long; Ctrl-C ends it earlier
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    seconds: u64,

    /// Mean distance between two samples in allocated bytes; less sees more, and costs more
    #[arg(long, value_name = "BYTES", value_parser = rate_parse)]
    rate: Option<u64>,

    /// Where to write the profile
    #[arg(short, long, value_name = "FILE", required_unless_present = "stop")]
    output: Option<PathBuf>,

    /// End the recording that is on, whoever began it
    #[arg(long, conflicts_with_all = ["output", "seconds", "rate"])]
    stop: bool,
}

#[derive(clap::Args)]
pub struct DumpArguments {
    /// The process, which records
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(required_unless_present = "dump", conflicts_with = "dump")]
    pid: Option<u32>,

    /// A dump that the library wrote (HAKMEM_RECORD), to be made a profile
    #[arg(value_name = "DUMP")]
    dump: Option<PathBuf>,

    /// Where to write the profile
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

const RATE_DEFAULT: u64 = 512 << 10;
/// As of HAKMEM_SAMPLE_BYTES.
const RATES: RangeInclusive<u64> = 64..=1 << 40;

/// 65536, 64K, 1M.
fn rate_parse(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        Some(b't' | b'T') => (&text[..text.len() - 1], 1 << 40),
        _ => (text, 1),
    };
    let rate = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    rate.filter(|rate| RATES.contains(rate)).ok_or_else(|| "from 64 bytes to 1024 GiB".to_owned())
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let attached = Attached::open(arguments.pid)?;
    let Some(output) = arguments.output.as_deref() else { return stop(&attached) };
    // Before ten seconds go by for nothing.
    Output::open(output)?;
    let was_on = attached.state() == State::On;
    let pid = arguments.pid;
    if was_on {
        let rate = attached.published()?.rate_bytes;
        let wanted = arguments.rate.filter(|wanted| *wanted != rate);
        let kept = wanted.map_or(String::new(), |wanted| format!("; --rate {wanted} is not used"));
        text::line_to_stderr(&format!(
            "hakmem: process {pid} records already; that recording does not end here, \
             `hakmem record -p {pid} --stop` ends it{kept}"
        ));
    }
    // Before we begin: whatever signal comes, what we began ends.
    let ended = Arc::new(AtomicBool::new(false));
    let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM];
    for signal in signals.into_iter().filter(|signal| !process::signal_is_ignored(*signal)) {
        let _ = signal_hook::flag::register(signal, ended.clone());
    }
    let (start_ns, start_realtime_ns) = (subject::now_ns(), subject::realtime_ns());
    let rate = arguments.rate.unwrap_or(RATE_DEFAULT);
    if !was_on && attached.start(rate)? == Taken::NotYet {
        text::line_to_stderr(&format!("hakmem: process {pid} {}; it records when it does", idle(&attached)));
    }
    let watched = watch(&attached, Duration::from_secs(arguments.seconds), &ended, was_on);
    // Also after a failure: what we began ends with us.
    let is_ours = !was_on && watched.as_ref().map_or(true, |watched| watched.last == State::On);
    let stopped = if is_ours { attached.stop() } else { Ok(Taken::Yes) };
    // From here on nothing of ours is on: a signal has us do without names, a second one ends us.
    process::hurry_from_now(b"hakmem: ended; nothing is written\n".to_vec());
    let Watched { mut moment, mut ticks, last } = watched?;
    let is_empty =
        !was_on && moment.tables.published.is_on == 0 && moment.tables.published.start_ns < start_ns;
    if is_empty {
        moment.tables.empty(start_ns, start_realtime_ns);
        moment.tables.published.rate_bytes = rate;
        ticks.clear();
    }
    // Those from before the recording began are of an earlier one, whose stacks may have had other numbers.
    ticks.retain(|tick| tick.time_ns >= moment.tables.published.start_ns);
    moment.subject.is_attached |= !was_on;
    written(output, &moment.profile(&ticks), "a smaller --rate, or more --seconds, sees more")?;
    if !is_empty {
        held_line(&attached.published().unwrap_or(moment.tables.published));
    }
    match (attached.state(), last) {
        (State::Ended, _) => text::line_to_stderr(&format!(
            "hakmem: process {pid} ended; the profile is of a moment shortly before"
        )),
        (State::Gone, _) => text::line_to_stderr(&format!(
            "hakmem: process {pid} became another program; the profile is of a moment shortly before"
        )),
        (_, State::Off) => text::line_to_stderr(&format!(
            "hakmem: the recording of process {pid} was ended by another; the profile is of its time until then"
        )),
        _ => drop(stopped?),
    }
    Ok(0)
}

/// Whose recorder was killed records on until somebody ends it.
fn stop(attached: &Attached) -> Result<u8, Failure> {
    let pid = attached.process.pid;
    let was_taken_back = attached.request_take_back()?;
    let line = match attached.state() {
        State::On => match attached.stop()? {
            Taken::Yes => format!(
                "the recording of process {pid} is ended; `hakmem dump -p {pid}` has what it recorded"
            ),
            Taken::NotYet => format!("process {pid} {}; its recording ends when it does", idle(attached)),
        },
        State::Off if was_taken_back => {
            format!("process {pid} does not record yet; the request to do so is taken back")
        }
        _ => return Err(Failure::usage(format!("process {pid} does not record; there is nothing to end"))),
    };
    text::line_to_stderr(&format!("hakmem: {line}"));
    Ok(0)
}

/// Why a process does not take what it is asked for.
fn idle(attached: &Attached) -> &'static str {
    let state = system::status_field(attached.process.pid, "State").ok().flatten();
    match state.is_some_and(|state| state.starts_with(['T', 't'])) {
        true => "is stopped, and cannot allocate",
        false => "has not allocated for a second",
    }
}

/// What sees more where the recording is not begun here.
const SAMPLE_BYTES: &str = "a smaller HAKMEM_SAMPLE_BYTES sees more";

pub fn dump(arguments: &DumpArguments) -> Result<u8, Failure> {
    let Some(pid) = arguments.pid else {
        let path = arguments.dump.as_deref().unwrap_or(Path::new(""));
        Output::open_beside(&arguments.output, &[path.to_owned()])?;
        written(&arguments.output, &file::read(path)?, SAMPLE_BYTES)?;
        return Ok(0);
    };
    let attached = Attached::open(pid)?;
    let published = attached.published()?;
    if published.is_on == 0 && published.start_ns == 0 {
        return Err(Failure::usage(format!(
            "process {pid} does not record; `hakmem record -p {pid}` has it do so"
        )));
    }
    let taken = Moment::of(&attached, "dump")?;
    let profile = taken.profile(&[]);
    written(&arguments.output, &profile, SAMPLE_BYTES)?;
    if taken.tables.published.is_on == 0 {
        let time = text::seconds(Duration::from_millis(profile.recording.duration_ms));
        text::line_to_stderr(&format!(
            "hakmem: the recording of process {pid} has ended; it went on for {time}"
        ));
    }
    Ok(0)
}

/// All that is read at one moment.
struct Moment {
    tables: Tables,
    subject: Subject,
    census: Census,
}

impl Moment {
    fn of(attached: &Attached, reason: &str) -> Result<Moment, Failure> {
        let tables = attached.tables()?;
        let subject = subject::of_process(&attached.process, &tables.published, reason)?;
        let residence = Residence::of_process(attached.process.pid);
        let census = Census::take(&attached.process, &tables.published, &tables.classes, &residence)
            .map_err(|reason| attached.failure(&reason))?;
        // What an exec came between is of two programs.
        attached.published()?;
        Ok(Moment { tables, subject, census })
    }

    fn profile(&self, ticks: &[Tick]) -> Profile {
        convert::profile(&self.tables, &self.subject, &self.census, ticks)
    }
}

/// What was seen of a process, and how it stood in the end: On where we had seen enough.
struct Watched {
    moment: Moment,
    ticks: Vec<Tick>,
    last: State,
}

/// Looks at the live samples now and then until the time is over, the recording or the process has ended, or we are
/// told to end; then at everything. Of a process that ends or execs meanwhile, what was last seen of it is what there is:
/// the first whole look is at once.
fn watch(attached: &Attached, time: Duration, ended: &AtomicBool, was_on: bool) -> Result<Watched, Failure> {
    const TICKS_MAX: u32 = 60;
    const LOOK: Duration = Duration::from_millis(20);
    const EARLY: Duration = Duration::from_secs(1);
    const WHOLE: Duration = Duration::from_secs(5);
    let start = Instant::now();
    let step = (time / TICKS_MAX).max(Duration::from_millis(250));
    let (mut next, mut next_whole) = (start, start);
    let (mut ticks, mut before) = (Vec::new(), None);
    let (mut last, mut was_on) = (State::On, was_on);
    while start.elapsed() < time && !ended.load(Relaxed) {
        let state = attached.state();
        was_on |= state == State::On;
        if matches!(state, State::Ended | State::Gone) || (state == State::Off && was_on) {
            last = state;
            break;
        }
        if Instant::now() >= next {
            next += step;
            if let Ok(live) = attached.live() {
                ticks.push(Tick::of(subject::now_ns(), &live));
            }
        }
        if Instant::now() >= next_whole {
            next_whole += if before.is_none() { EARLY.min(time / 4) } else { WHOLE };
            before = Moment::of(attached, "record").ok().or(before);
        }
        std::thread::sleep(LOOK.min(time.saturating_sub(start.elapsed())));
    }
    let moment = Moment::of(attached, "record").or_else(|failure| before.ok_or(failure))?;
    Ok(Watched { moment, ticks, last })
}

/// Looks at a program that records by its environment, from its start to its end; what was seen last is kept.
/// Nothing is begun or ended by it.
pub struct Watch {
    end: Sender<()>,
    looks: JoinHandle<Option<LastLook>>,
}

/// What was last seen of a program that has ended.
pub struct LastLook {
    moment: Moment,
    /// It became another program since, of which nothing was seen.
    is_former: bool,
}

impl Watch {
    /// None: there is no thread to be had.
    pub fn begin(pid: u32) -> Option<Watch> {
        let (end, ended) = channel();
        let looks = std::thread::Builder::new().spawn(move || looks(pid, &ended)).ok()?;
        Some(Watch { end, looks })
    }

    pub fn end(self) -> Option<LastLook> {
        drop(self.end);
        self.looks.join().ok()?
    }
}

impl LastLook {
    /// Writes it as the profile, and says that it is one, and `reason`: why there is none of the end.
    pub fn write(mut self, path: &Path, reason: &str, hint: &str) -> Result<(), Failure> {
        self.moment.subject.root = PathBuf::from("/"); // the process has none any more
        written(path, &self.moment.profile(&[]), hint)?;
        let what = if self.is_former { " it became another program" } else { "" };
        text::line_to_stderr(&format!(
            "hakmem: no profile of its end: {reason}; the profile is of a moment shortly before{what}"
        ));
        Ok(())
    }
}

/// After the first look the next comes when the program is twice as old, and at the latest after five seconds,
/// or after twenty times as long as the look took.
fn looks(pid: u32, ended: &Receiver<()>) -> Option<LastLook> {
    const STEP: Duration = Duration::from_millis(100);
    const PAUSE: Duration = Duration::from_secs(5);
    let (mut attached, mut last): (Option<Attached>, Option<LastLook>) = (None, None);
    let mut start = Instant::now();
    let mut next = start;
    while ended.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
        let now = Instant::now();
        if attached.as_ref().is_some_and(|attached| attached.state() == State::Gone) {
            attached = None;
            last.iter_mut().for_each(|last| last.is_former = true);
            (start, next) = (now, now);
        }
        if now < next {
            continue;
        }
        attached = attached.or_else(|| Attached::open(pid).ok());
        let moment = attached.as_ref().and_then(|attached| Moment::of(attached, "record").ok());
        if let Some(moment) = moment.filter(|moment| moment.tables.published.start_ns != 0) {
            last = Some(LastLook { moment, is_former: false });
        }
        next = Instant::now() + (now - start).clamp(STEP, PAUSE).max(now.elapsed() * 20);
    }
    last
}

/// What the process paid, as its library counted it: until the end of the recording, if that was ours.
fn held_line(published: &Published) {
    if published.held_count == 0 {
        return; // a library that does not count it, or that took no sample
    }
    text::line_to_stderr(&format!(
        "hakmem: it held the program up for {} in all, {} at most at once",
        text::nanoseconds(published.held_ns),
        text::nanoseconds(published.held_max_ns),
    ));
}

/// `hint` says what would see more.
pub fn written(path: &Path, profile: &Profile, hint: &str) -> Result<(), Failure> {
    let bytes = file::write(path, profile)?;
    let lost = profile.recording.dropped_count;
    let lost =
        if lost == 0 { String::new() } else { format!("; {} samples found no place", text::count(lost)) };
    text::line_to_stderr(&format!(
        "hakmem: {} from {}, {} live at {}, in {} ({}){lost}",
        text::counted(profile.recording.sample_count, "sample", "samples"),
        text::quote(&profile.program.name),
        text::bytes(profile.totals.live.bytes),
        text::counted(profile.stacks.len() as u64, "call site", "call sites"),
        if path == Path::new(output::STREAM) { "standard output".to_owned() } else { text::quote(path) },
        text::bytes(bytes),
    ));
    if profile.recording.sample_count == 0 {
        text::line_to_stderr(&format!("hakmem: no sample: it allocated little; {hint}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bytes_with_a_unit() {
        let row = crate::options::find("sample_bytes").unwrap();
        assert_eq!(row.range_text(), format!("{} to {}", RATES.start(), RATES.end()));
        assert_eq!((rate_parse("65536"), rate_parse("64")), (Ok(65536), Ok(64)));
        assert_eq!((rate_parse("64K"), rate_parse("1m")), (Ok(65536), Ok(1 << 20)));
        assert_eq!((rate_parse("1G"), rate_parse("1t")), (Ok(1 << 30), Ok(1 << 40)));
        for wrong in ["", "K", "63", "-1", "2T", "1G1", "99999999999999999999"] {
            assert!(rate_parse(wrong).is_err(), "{wrong}");
        }
    }
}
