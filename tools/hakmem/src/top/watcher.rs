//! watcher.rs - the thread that looks, so that keys answer at once however long a look takes.
//!
//! Owns: the Looker. The screen sends it what is wanted; it sends what it saw.

use super::look::{Looker, Seen};
use crate::{process, text};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the screen wants.
pub enum Want {
    /// Look at all or one, and at whose call sites; now.
    Show {
        only: Option<u32>,
        detailed: Option<u32>,
    },
    Interval(Duration),
    Record(u32, bool),
    End,
}

/// What the watcher has.
pub enum News {
    Seen(Vec<Seen>),
    Said(String),
}

pub struct Watcher {
    wants: Sender<Want>,
    pub news: Receiver<News>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub fn start(only: Option<u32>, interval: Duration) -> Watcher {
        let (wants, wanted) = channel();
        let (tell, news) = channel();
        let thread = std::thread::spawn(move || watch(only, interval, &wanted, &tell));
        Watcher { wants, news, thread: Some(thread) }
    }

    pub fn want(&self, want: Want) {
        let _ = self.wants.send(want);
    }
}

/// Recordings that were begun end with the screen, also when it fails.
impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.wants.send(Want::End);
        process::hurry(); // a look may wait for a server of debug files
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(only: Option<u32>, mut interval: Duration, wanted: &Receiver<Want>, tell: &Sender<News>) {
    let mut looker = Looker::default();
    let (mut only, mut detailed) = (only, only);
    let mut next = Instant::now();
    loop {
        match wanted.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Want::Show { only: new_only, detailed: new_detailed }) => {
                (only, detailed) = (new_only, new_detailed);
                next = Instant::now();
            }
            Ok(Want::Interval(new)) => {
                interval = new;
                next = next.min(Instant::now() + interval);
            }
            Ok(Want::Record(pid, is_on)) => {
                let said = looker.record(pid, is_on).unwrap_or_else(|failure| failure.line);
                let _ = tell.send(News::Said(said));
                next = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) => {
                // A look that takes long makes the next one later: we never take more than half of a processor.
                let start = Instant::now();
                if tell.send(News::Seen(looker.look(only, detailed))).is_err() {
                    break;
                }
                next = Instant::now() + interval.max(start.elapsed());
            }
            Ok(Want::End) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // The screen is given back by now.
    looker.end().iter().for_each(|line| text::line_to_stderr(&format!("hakmem: {line}")));
}
