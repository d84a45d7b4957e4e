//! prometheus.rs - a reading in Prometheus's text format, one metric after another, each with its line of help.
//!
//! Names:  hakmem_NAME, with _total for counters; by size class with the label class_bytes. One process, so no label names it: the
//!         scraper's own labels do. The library writes the same from within (src/front/metrics.c).

use super::{Kind, Metric, Reading};
use std::fmt::Write as _;

pub fn page(reading: &Reading) -> String {
    let mut text = String::new();
    head(&mut text, "info", "gauge", "The library and the program");
    let _ = writeln!(
        text,
        "hakmem_info{{version=\"{}\",program=\"{}\",pid=\"{}\"}} 1",
        label(&reading.library_version),
        label(&reading.program),
        reading.pid
    );
    reading.metrics.iter().for_each(|metric| write(&mut text, metric));
    text
}

fn write(text: &mut String, metric: &Metric) {
    let (kind, suffix) = match metric.kind {
        Kind::Gauge => ("gauge", ""),
        Kind::Counter | Kind::RecordingCounter => ("counter", "_total"),
    };
    let name = format!("{}{suffix}", metric.name);
    head(text, &name, kind, metric.help);
    for point in &metric.points {
        let _ = match point.class_bytes {
            Some(bytes) => writeln!(text, "hakmem_{name}{{class_bytes=\"{bytes}\"}} {}", point.value),
            None => writeln!(text, "hakmem_{name} {}", point.value),
        };
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', " ");
    let _ = writeln!(text, "# HELP hakmem_{name} {help}\n# TYPE hakmem_{name} {kind}");
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::{Point, rows::Unit};
    use super::*;

    #[test]
    fn labels_and_help_stay_in_the_format() {
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        let point = |bytes, value| Point { class_bytes: Some(bytes), value };
        let mut text = String::new();
        write(
            &mut text,
            &Metric {
                name: "x".into(),
                otel: "x".into(),
                unit: Unit::One,
                kind: Kind::Gauge,
                help: "of\nx",
                points: vec![point(16, 1), point(32, 2)],
            },
        );
        assert_eq!(
            text,
            "# HELP hakmem_x of x\n# TYPE hakmem_x gauge\nhakmem_x{class_bytes=\"16\"} 1\nhakmem_x{class_bytes=\"32\"} 2\n"
        );
    }
}
