//! metrics - what there is to know of a running process in numbers, and the formats in which it leaves.
//!
//! Owns:      the one table of metrics (rows.rs), a reading of all of them at one moment.
//! Formats:   Prometheus's text (prometheus.rs) and OpenTelemetry's messages (otlp.rs), both of the same reading, so that neither
//!            has a value that the other has not; where the latter go (endpoint.rs), and how (push.rs).

mod endpoint;
mod otlp;
mod prometheus;
mod push;
mod rows;
#[cfg(test)]
mod tests;

pub use endpoint::{Endpoint, interval, variable};
pub use otlp::json;
pub use push::push;
pub use rows::Kind;

use crate::options::COUNTERS;
use crate::recording::attach::Attached;
use crate::recording::pages::{Census, ClassCount, Residence};
use crate::recording::raw::{self, Tables};
use crate::system;
use crate::text::Failure;
use rows::{ROWS, Unit, Value};
use std::borrow::Cow;

/// What the values of a reading are taken from.
pub struct Look<'a> {
    tables: &'a Tables,
    census: &'a Census,
    pid: u32,
}

impl Look<'_> {
    fn kib(&self, field: &str) -> Option<u64> {
        let value = system::status_field(self.pid, field).ok().flatten()?;
        Some(value.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    }

    fn is_on(&self) -> bool {
        self.tables.published.is_on != 0
    }

    /// A sum over the size classes.
    fn classes(&self, of: impl Fn(&ClassCount) -> u64) -> u64 {
        self.census.classes.iter().map(of).sum()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub name: Cow<'static, str>, // with Prometheus, behind hakmem_
    pub otel: Cow<'static, str>, // with OpenTelemetry, behind hakmem.
    pub unit: Unit,
    pub kind: Kind,
    pub help: &'static str,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Of which size class; None: of all.
    pub class_bytes: Option<u64>,
    pub value: u64,
}

/// All metrics of a process at one moment.
#[derive(Clone)]
pub struct Reading {
    pub pid: u32,
    pub program: String,
    pub library_version: String,
    pub time_ns: u64,            // since 1970, as all times here
    pub recording_start_ns: u64, // 0: there was none
    pub metrics: Vec<Metric>,
}

impl Reading {
    pub fn take(attached: &Attached) -> Result<Reading, Failure> {
        let tables = attached.tables()?;
        let pid = attached.process.pid;
        let residence = Residence::of_process(pid);
        let census = Census::take(&attached.process, &tables.published, &tables.classes, &residence)
            .map_err(|reason| attached.failure(&reason))?;
        Ok(Reading::of(&Look { tables: &tables, census: &census, pid }))
    }

    fn of(look: &Look) -> Reading {
        let published = &look.tables.published;
        let name = system::text_read(format!("/proc/{}/comm", look.pid)).unwrap_or_default();
        let mut metrics: Vec<Metric> = ROWS.iter().filter_map(|row| row.read(look)).collect();
        for (name, value) in look.tables.counters.iter().filter(|(name, _)| is_name(name)) {
            // The library's counters may have a figure of the recording again.
            if metrics.iter().all(|metric| metric.name != *name || metric.kind == Kind::Gauge) {
                metrics.push(counter(name, *value));
            }
        }
        Reading {
            pid: look.pid,
            program: name.trim_end().to_owned(),
            library_version: raw::text_of(&published.library_version),
            time_ns: system::realtime_ns(),
            recording_start_ns: published.start_realtime_ns,
            metrics,
        }
    }

    pub fn prometheus(&self) -> String {
        prometheus::page(self)
    }
}

impl rows::Row {
    fn read(&self, look: &Look) -> Option<Metric> {
        let point = |class_bytes, value| Point { class_bytes, value };
        let points = match self.value {
            Value::One(of) => vec![point(None, of(look)?)],
            Value::ByClass(of) => {
                let used = look.census.classes.iter().filter(|class| class.slab_count > 0);
                let mut used: Vec<_> = used.collect();
                used.sort_by_key(|class| class.block_bytes); // those of aligned blocks come last in the library's table
                used.into_iter().map(|class| point(Some(class.block_bytes), of(class))).collect()
            }
        };
        let (unit, kind, help) = (self.unit, self.kind, self.help);
        Some(Metric { name: self.name.into(), otel: self.otel.into(), unit, kind, help, points })
    }
}

/// A counter of the library: its name with OpenTelemetry has no dot but the first, as that of no row.
fn counter(name: &str, value: u64) -> Metric {
    let row = COUNTERS.iter().find(|row| row.name == name);
    Metric {
        name: name.to_owned().into(),
        otel: name.to_owned().into(),
        unit: row.map_or(Unit::One, |row| Unit::Things(row.unit)),
        kind: Kind::Counter,
        help: row.map_or("A counter of the library", |row| row.text),
        points: vec![Point { class_bytes: None, value }],
    }
}

/// Names come from another process: only what the formats allow goes out.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
