//! otlp.rs - a reading as OpenTelemetry's ExportMetricsServiceRequest.
//!
//! Source:  opentelemetry.io/docs/specs/otlp and its data model; the messages are the crate opentelemetry-proto's.
//! Names:   hakmem.GROUP.NAME; a size class is the attribute hakmem.class.block_size. What Prometheus's hakmem_info says stands in
//!          the resource.
//! Sums:    cumulative, since the process began, or its recording.

use super::{Kind, Metric, Point, Reading, rows::Unit};
use crate::system;
use crate::text;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric as Message, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric::Data, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use sha2::{Digest, Sha256};

/// Whose metrics they are, and since when they count.
pub struct Subject {
    attributes: Vec<(String, any_value::Value)>,
    start_ns: u64,
}

impl Subject {
    pub fn of(pid: u32, variable: &dyn Fn(&str) -> Option<String>) -> Subject {
        let text = any_value::Value::StringValue;
        let executable = system::executable_path(pid).unwrap_or_default();
        let name = executable.rsplit('/').next().unwrap_or_default().to_owned();
        let host = system::host_name().unwrap_or_default();
        let mut subject = Subject {
            attributes: vec![
                ("service.name".to_owned(), text(name.clone())),
                ("service.instance.id".to_owned(), text(instance(&host, pid))),
                ("process.pid".to_owned(), any_value::Value::IntValue(pid.into())),
                ("process.executable.name".to_owned(), text(name)),
                ("process.executable.path".to_owned(), text(executable)),
                ("host.name".to_owned(), text(host)),
            ],
            start_ns: system::start_time_ns(pid).unwrap_or(0),
        };
        if let Some(given) = variable("OTEL_RESOURCE_ATTRIBUTES") {
            match pairs(&given) {
                Some(pairs) => pairs.into_iter().for_each(|(name, value)| subject.set(name, value)),
                None => text::line_to_stderr(
                    "hakmem: OTEL_RESOURCE_ATTRIBUTES is no list of name=value: it is ignored",
                ),
            }
        }
        if let Some(name) = variable("OTEL_SERVICE_NAME") {
            subject.set("service.name".to_owned(), name);
        }
        subject
    }

    fn set(&mut self, name: String, value: String) {
        self.attributes.retain(|(known, _)| *known != name);
        self.attributes.push((name, any_value::Value::StringValue(value)));
    }
}

/// Two processes of a service are told by it, and it stays where the command is started again: a UUID of version 8.
fn instance(host: &str, pid: u32) -> String {
    let boot = system::text_read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let start = system::start_time(pid).unwrap_or(0);
    let digest = Sha256::digest(format!("hakmem {host} {boot} {pid} {start}"));
    let mut bytes: [u8; 16] = digest[..16].try_into().unwrap_or_default();
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// name=value,name=value with %XX in values, as OpenTelemetry's variables have it; None: it is no such list.
pub fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=')?;
            let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8().ok()?;
            let name = name.trim();
            (!name.is_empty()).then(|| (name.to_owned(), value.into_owned()))
        })
        .collect()
}

pub fn request(reading: &Reading, subject: &Subject) -> ExportMetricsServiceRequest {
    let mut attributes: Vec<KeyValue> =
        subject.attributes.iter().map(|(name, value)| attribute(name, value.clone())).collect();
    let version = any_value::Value::StringValue(reading.library_version.clone());
    attributes.push(attribute("hakmem.library.version", version));
    let scope = InstrumentationScope {
        name: "hakmem".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let used = reading.metrics.iter().filter(|metric| !metric.points.is_empty());
    let metrics = used.map(|metric| message(metric, reading, subject.start_ns)).collect();
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }],
            ..ResourceMetrics::default()
        }],
    }
}

/// One request in JSON, on one line.
pub fn json(reading: &Reading) -> Result<String, serde_json::Error> {
    serde_json::to_string(&request(reading, &Subject::of(reading.pid, &super::variable)))
}

fn attribute(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn message(metric: &Metric, reading: &Reading, process_start_ns: u64) -> Message {
    let start_ns = match metric.kind {
        Kind::Gauge => 0,
        Kind::Counter => process_start_ns,
        Kind::RecordingCounter => process_start_ns.max(reading.recording_start_ns),
    };
    let point = |point: &Point| NumberDataPoint {
        attributes: Vec::from_iter(point.class_bytes.map(|bytes| {
            attribute("hakmem.class.block_size", any_value::Value::IntValue(bytes as i64))
        })),
        start_time_unix_nano: start_ns.min(reading.time_ns),
        time_unix_nano: reading.time_ns,
        value: Some(number(metric.unit, point.value)),
        ..NumberDataPoint::default()
    };
    let data_points = metric.points.iter().map(point).collect();
    let data = match metric.kind {
        Kind::Gauge => Data::Gauge(Gauge { data_points }),
        Kind::Counter | Kind::RecordingCounter => Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
    };
    Message {
        name: format!("hakmem.{}", metric.otel),
        description: metric.help.to_owned(),
        unit: metric.unit.ucum().into_owned(),
        data: Some(data),
        ..Message::default()
    }
}

fn number(unit: Unit, value: u64) -> number_data_point::Value {
    match unit {
        Unit::Nanoseconds => number_data_point::Value::AsDouble(value as f64 / 1e9),
        _ => number_data_point::Value::AsInt(i64::try_from(value).unwrap_or(i64::MAX)),
    }
}
