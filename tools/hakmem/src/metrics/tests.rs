//! Both formats of one reading are decoded again and compared: the same values, kinds and help.

use super::otlp::{self, Subject};
use super::rows::{ROWS, Unit};
use super::*;
use crate::recording::raw::{ClassRow, Large, Plain, Published, TimeRow};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric::Data, number_data_point};
use prost::Message;
use std::collections::BTreeMap;

const RECORDING_START_NS: u64 = 4_000_000_000_000_000_000;

/// Of this process, which records; each value another one.
fn reading(is_on: bool) -> Reading {
    let mut published = Published::from_bytes(&[0; size_of::<Published>()]);
    published.is_on = u32::from(is_on);
    published.start_realtime_ns = if is_on { RECORDING_START_NS } else { 0 };
    (published.samples, published.lost_live, published.lost_stacks) = (101, 102, 103);
    (published.held_ns, published.held_max_ns, published.rate_bytes) = (1_234_567_891, 71_003, 512 << 10);
    (published.alloc_bytes, published.free_bytes, published.guard_found) = (u64::MAX, 5, 6);
    let class = |bytes| {
        let mut class = ClassRow::from_bytes(&[0; size_of::<ClassRow>()]);
        class.block_bytes = bytes;
        class
    };
    let classes = vec![class(16), class(32), class(48)];
    let mut census = Census::empty(&published, &classes);
    for (at, class) in census.classes.iter_mut().enumerate().skip(1) {
        let at = at as u64;
        (class.slab_count, class.live_count) = (at, 1000 + at);
        (class.resident_bytes, class.sparse_bytes) = (at << 16, 7 * at);
    }
    let mut last = TimeRow::from_bytes(&[0; size_of::<TimeRow>()]);
    (last.free_bytes, last.returned_bytes, last.retouched_bytes) = (11, 12, 13);
    let counters =
        [("visit_new_slab", 21), ("samples", 22), ("of_another_version", 23), ("bad{name", 24), ("", 25)];
    let tables = Tables {
        published,
        stacks: Vec::new(),
        frames: Vec::new(),
        live: Vec::new(),
        threads: Vec::new(),
        timeline: vec![last],
        classes,
        counters: counters.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        large: Large { bytes: 1 << 20, count: 3 },
        torn_count: 0,
    };
    Reading::of(&Look { tables: &tables, census: &census, pid: std::process::id() })
}

fn subject(variables: &[(&str, &str)]) -> Subject {
    let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Subject::of(std::process::id(), &value)
}

fn sent(reading: &Reading, subject: &Subject) -> ExportMetricsServiceRequest {
    let bytes = otlp::request(reading, subject).encode_to_vec();
    ExportMetricsServiceRequest::decode(&bytes[..]).unwrap()
}

fn points(data: &Data) -> (&'static str, &[NumberDataPoint]) {
    match data {
        Data::Gauge(gauge) => ("gauge", &gauge.data_points),
        Data::Sum(sum) => {
            assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
            ("counter", &sum.data_points)
        }
        _ => panic!("neither gauge nor sum"),
    }
}

/// Of each sample of Prometheus's text its kind, help and value.
fn samples(text: &str) -> BTreeMap<String, (String, String, u64)> {
    let (mut kind, mut help) = (String::new(), String::new());
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap().1.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            kind = rest.split_once(' ').unwrap().1.to_owned();
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let sample = (kind.clone(), help.clone(), value.parse().unwrap());
            assert!(samples.insert(series.to_owned(), sample).is_none(), "{series} twice");
        }
    }
    samples
}

#[test]
fn both_formats_have_the_same_values() {
    for is_on in [true, false] {
        let reading = reading(is_on);
        let mut samples = samples(&reading.prometheus());
        samples.retain(|series, _| !series.starts_with("hakmem_info{"));
        let names: BTreeMap<_, _> =
            reading.metrics.iter().map(|metric| (format!("hakmem.{}", metric.otel), &*metric.name)).collect();
        assert_eq!(names.len(), reading.metrics.len());
        let request = sent(&reading, &subject(&[]));
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        for metric in metrics {
            let (kind, points) = points(metric.data.as_ref().unwrap());
            let suffix = if kind == "counter" { "_total" } else { "" };
            let name = format!("hakmem_{}{suffix}", names[&metric.name]);
            for point in points {
                let class = point.attributes.iter().map(|attribute| {
                    assert_eq!(attribute.key, "hakmem.class.block_size");
                    match attribute.value.as_ref().unwrap().value {
                        Some(Any::IntValue(bytes)) => format!("{{class_bytes=\"{bytes}\"}}"),
                        _ => panic!("no number"),
                    }
                });
                let series = format!("{name}{}", class.collect::<String>());
                let (their_kind, help, value) = samples.remove(&series).expect(&series);
                assert_eq!((kind, &metric.description), (&*their_kind, &help), "{series}");
                match point.value.unwrap() {
                    number_data_point::Value::AsInt(number) => {
                        assert_eq!(number, i64::try_from(value).unwrap_or(i64::MAX), "{series}");
                        assert_ne!(metric.unit, "s");
                    }
                    number_data_point::Value::AsDouble(number) => {
                        assert_eq!((number * 1e9).round() as u64, value, "{series}");
                        assert_eq!(metric.unit, "s");
                    }
                }
                assert_eq!(point.time_unix_nano, reading.time_ns);
            }
        }
        assert!(samples.is_empty(), "in Prometheus's text alone: {samples:?}");
        assert_eq!(metrics.iter().any(|metric| metric.name == "hakmem.memory.free"), is_on);
        assert!(names.contains_key("hakmem.of_another_version") && !names.contains_key("hakmem.samples"));
    }
}

#[test]
fn json_says_what_protobuf_says() {
    let (reading, subject) = (reading(true), subject(&[]));
    let json = serde_json::to_string(&otlp::request(&reading, &subject)).unwrap();
    assert_eq!(json.lines().count(), 1);
    assert_eq!(serde_json::from_str::<ExportMetricsServiceRequest>(&json).unwrap(), sent(&reading, &subject));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let metrics = value["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let samples = metrics.iter().find(|metric| metric["name"] == "hakmem.recording.samples").unwrap();
    assert_eq!(samples["unit"], "{sample}");
    assert_eq!(samples["sum"]["aggregationTemporality"], 2);
    assert_eq!(samples["sum"]["dataPoints"][0]["asInt"], "101"); // 64 bits are text, by protobuf's JSON
    assert_eq!(samples["sum"]["dataPoints"][0]["timeUnixNano"], reading.time_ns.to_string());
}

#[test]
fn sums_count_since_the_process_began_or_its_recording() {
    let mut reading = reading(true);
    let process_ns = system::start_time_ns(std::process::id()).unwrap();
    assert!(process_ns < reading.time_ns && reading.time_ns - process_ns < 3600 * 1_000_000_000);
    reading.recording_start_ns = reading.time_ns - 1;
    let request = sent(&reading, &subject(&[]));
    let start = |name: &str| {
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
        points(metric.data.as_ref().unwrap()).1[0].start_time_unix_nano
    };
    assert_eq!(start("hakmem.memory.resident"), 0);
    assert!(start("hakmem.visit_new_slab").abs_diff(process_ns) < 1_000_000_000);
    assert_eq!(start("hakmem.guard.misuses"), start("hakmem.visit_new_slab"));
    assert_eq!(start("hakmem.recording.samples"), reading.time_ns - 1);
}

#[test]
fn the_resource_says_whose_they_are_and_variables_say_it_better() {
    let attributes = |variables: &[(&str, &str)]| {
        let request = sent(&reading(false), &subject(variables));
        let scope = request.resource_metrics[0].scope_metrics[0].scope.clone().unwrap();
        assert_eq!((&*scope.name, &*scope.version), ("hakmem", env!("CARGO_PKG_VERSION")));
        let attributes = request.resource_metrics[0].resource.clone().unwrap().attributes;
        let text = |value| match value {
            Some(Any::StringValue(text)) => text,
            Some(Any::IntValue(number)) => number.to_string(),
            _ => panic!("neither text nor number"),
        };
        let count = attributes.len();
        let all: BTreeMap<_, _> =
            attributes.into_iter().map(|pair| (pair.key, text(pair.value.unwrap().value))).collect();
        assert_eq!(all.len(), count, "an attribute stands there twice");
        all
    };
    let plain = attributes(&[]);
    assert_eq!(plain["process.pid"], std::process::id().to_string());
    assert!(plain["process.executable.path"].ends_with(&plain["process.executable.name"]));
    assert_eq!(plain["service.name"], plain["process.executable.name"]);
    assert!(!plain["host.name"].is_empty());
    let instance = &plain["service.instance.id"];
    assert!(
        instance.len() == 36 && instance.as_bytes()[14] == b'8' && b"89ab".contains(&instance.as_bytes()[19])
    );
    assert_eq!(*instance, attributes(&[])["service.instance.id"]);

    let given = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a, team=x%2Cy,host.name=h");
    let all = attributes(&[given]);
    assert_eq!([&*all["service.name"], &*all["team"], &*all["host.name"]], ["a", "x,y", "h"]);
    assert_eq!(attributes(&[given, ("OTEL_SERVICE_NAME", "b")])["service.name"], "b");
    assert_eq!(attributes(&[("OTEL_RESOURCE_ATTRIBUTES", "team")]), plain);
}

#[test]
fn names_tell_their_units_and_none_is_the_group_of_others() {
    for row in ROWS {
        assert_eq!(row.name.ends_with("_bytes"), row.unit == Unit::Bytes, "{}", row.name);
        assert_eq!(row.name.contains("_ns") || row.name.contains("held_max"), row.unit == Unit::Nanoseconds);
        let group = format!("{}.", row.otel);
        assert!(row.otel.contains('.') && !ROWS.iter().any(|other| other.otel.starts_with(&group)));
        assert!(row.otel.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'.'), "{}", row.otel);
        assert_eq!(ROWS.iter().filter(|other| other.otel == row.otel).count(), 1, "{}", row.otel);
        assert_eq!(ROWS.iter().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
    }
    for (unit, ucum) in [(Unit::Bytes, "By"), (Unit::Nanoseconds, "s"), (Unit::Things("slabs"), "{slab}")] {
        assert_eq!(unit.ucum(), ucum);
    }
    assert!(is_name("visit_new_slab") && !is_name("a{b") && !is_name(""));
}

/// docs/profiles.md has each by both names, with its unit; a crate that is packaged alone has no docs.
#[test]
fn the_page_lists_every_metric() {
    let Ok(page) = std::fs::read_to_string("../../docs/profiles.md") else { return };
    let listed: Vec<_> = page.lines().filter(|line| line.starts_with("| `hakmem.")).collect();
    for row in ROWS {
        let total = if row.kind == Kind::Gauge { "" } else { "_total" };
        let wanted =
            format!("| `hakmem.{}` | {} | `hakmem_{}{total}` |", row.otel, row.unit.ucum(), row.name);
        assert!(listed.contains(&&*wanted), "docs/profiles.md lacks the line\n{wanted}");
    }
    assert_eq!(listed.len(), ROWS.len());
}
