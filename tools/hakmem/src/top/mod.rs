//! top/ - `hakmem top`: the processes that have the library, and what one of them does with memory, as it happens.
//!
//! look.rs sees (from outside, without stopping anything), watcher.rs does so in a thread of its own, state.rs is what keys
//! change, screen.rs draws it, plain.rs prints it, terminal.rs takes the terminal and gives it back.

use crate::text::{self, Failure};
use crossterm::event::{self, Event, KeyEventKind};
use look::Looker;
use screen::Looks;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use state::{Ask, State};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;
use terminal::Screen;
use watcher::{News, Want, Watcher};

mod look;
mod plain;
mod screen;
mod state;
mod terminal;
mod watcher;

const INTERVAL_MS: [u64; 6] = [250, 500, 1000, 2000, 5000, 10_000];

#[derive(clap::Args)]
pub struct Arguments {
    /// This process
    #[arg(short, long, value_name = "PID", conflicts_with = "name", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Processes whose name contains this; one alone is opened
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print what there is as text, and end
    #[arg(long)]
    once: bool,

    /// Seconds between two looks
    #[arg(short, long, value_name = "N", default_value_t = 1.0, value_parser = interval_parse)]
    interval: f64,
}

fn interval_parse(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.1..=3600.0).contains(number));
    number.ok_or_else(|| "from 0.1 to 3600 seconds".to_owned())
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    if let Some(obstacle) = crate::system::proc_obstacle() {
        return Err(Failure::usage(obstacle));
    }
    let interval = Duration::from_secs_f64(arguments.interval);
    let open = match (arguments.pid, &arguments.name) {
        (Some(pid), _) => {
            // What is wrong with it is said before a screen is taken.
            crate::recording::attach::Attached::open(pid)?;
            Some(pid)
        }
        (None, Some(name)) => find(name)?,
        (None, None) => None,
    };
    let filter = if open.is_none() { arguments.name.as_deref().unwrap_or_default() } else { "" };
    let mut state = State::new(open, filter, interval.as_millis() as u64);
    if arguments.once {
        return once(&mut state, interval);
    }
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::usage("this is no terminal; --once prints what there is"));
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err(Failure::usage("this terminal has no screen (TERM); --once prints what there is"));
    }
    live(&mut state, interval)
}

/// The process of that name; None: there are several.
fn find(name: &str) -> Result<Option<u32>, Failure> {
    let mut seen = Looker::default().look(None, None);
    seen.retain(|seen| seen.name.to_lowercase().contains(&name.to_lowercase()));
    match seen.as_slice() {
        [] => Err(Failure {
            status: 1,
            line: format!(
                "no process with {} in its name runs with hakmem, as far as you may see",
                text::quote(name)
            ),
        }),
        [one] => Ok(Some(one.pid)),
        _ => Ok(None),
    }
}

fn once(state: &mut State, interval: Duration) -> Result<u8, Failure> {
    let mut looker = Looker::default();
    // Rates need two looks.
    looker.look(state.open, state.open);
    std::thread::sleep(interval);
    state.renew(looker.look(state.open, state.open));
    if let (Some(pid), None) = (state.open, state.shown()) {
        return Err(Failure::usage(format!("process {pid} has ended")));
    }
    if state.seen.is_empty() {
        return Err(Failure {
            status: 1,
            line: "no process that you may look at runs with hakmem".to_owned(),
        });
    }
    print!("{}", plain::text(state));
    Ok(0)
}

fn live(state: &mut State, interval: Duration) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(format!("the terminal: {}", crate::system::error_text(&error)))
    };
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        let _ = signal_hook::flag::register_usize(number, signal.clone(), number as usize);
    }
    let looks = Looks {
        has_colour: text::colours_welcome(&std::io::stdout()),
        has_unicode: ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .is_some_and(|value| value.to_lowercase().replace('-', "").contains("utf8")),
    };
    let watcher = Watcher::start(state.open, interval);
    let mut screen = Screen::take().map_err(failed)?;
    let outcome = turn(state, &watcher, &mut screen, looks, &signal);
    drop(screen); // before the recordings' end, which may wait for a process
    drop(watcher);
    outcome.map_err(failed)?;
    Ok(match signal.load(SeqCst) {
        0 => 0,
        number => 128 + number as u8,
    })
}

/// Until somebody has enough.
fn turn(
    state: &mut State,
    watcher: &Watcher,
    screen: &mut Screen,
    looks: Looks,
    signal: &AtomicUsize,
) -> std::io::Result<()> {
    const PATIENCE: Duration = Duration::from_millis(100);
    let mut is_new = true;
    loop {
        if is_new {
            screen.terminal.draw(|frame| screen::draw(frame, state, looks))?;
            is_new = false;
        }
        #[cfg(debug_assertions)]
        assert!(std::env::var("HAKMEM_TEST_PANIC").as_deref() != Ok("1"), "as the test wants it");
        if signal.load(SeqCst) != 0 {
            return Ok(());
        }
        if event::poll(PATIENCE)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let is_stop = key.code == event::KeyCode::Char('z')
                        && key.modifiers.contains(event::KeyModifiers::CONTROL);
                    if is_stop {
                        screen.suspend()?;
                    } else if is_end(state.key(key), state, watcher) {
                        return Ok(());
                    }
                }
                Event::Resize(..) => screen.terminal.autoresize()?,
                _ => {}
            }
            is_new = true;
        }
        loop {
            match watcher.news.try_recv() {
                Ok(News::Seen(seen)) => state.renew(seen),
                Ok(News::Said(line)) => {
                    #[cfg(debug_assertions)]
                    assert!(
                        std::env::var("HAKMEM_TEST_PANIC").as_deref() != Ok(line.as_str()),
                        "as the test wants it"
                    );
                    state.say(line);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()), // it panicked, and has said so
            }
            is_new = true;
        }
    }
}

fn is_end(ask: Ask, state: &mut State, watcher: &Watcher) -> bool {
    let only = state.open.filter(|_| state.is_only);
    match ask {
        Ask::Quit => return true,
        Ask::Look => watcher.want(Want::Show { only, detailed: state.open }),
        Ask::Record(pid, is_on) => watcher.want(Want::Record(pid, is_on)),
        Ask::Interval(step) => {
            let at =
                INTERVAL_MS.iter().position(|ms| *ms >= state.interval_ms).unwrap_or(INTERVAL_MS.len() - 1);
            let next = at.saturating_add_signed(step as isize).min(INTERVAL_MS.len() - 1);
            state.interval_ms = INTERVAL_MS[next];
            state.say(format!("every {} s", state.interval_ms as f64 / 1000.0));
            watcher.want(Want::Interval(Duration::from_millis(state.interval_ms)));
        }
        Ask::Nothing => {}
    }
    false
}
