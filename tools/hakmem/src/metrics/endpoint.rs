//! endpoint.rs - where OpenTelemetry's messages go: the URL that was given, or what its variables say.
//!
//! Source:  opentelemetry.io/docs/specs/otel/protocol/exporter. A URL of OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is taken as it is,
//!          /v1/metrics goes behind that of OTEL_EXPORTER_OTLP_ENDPOINT, and behind a given one that has no path.
//! Lost:    https, gRPC and JSON: a collector beside the process speaks them all.

use super::otlp;
use crate::text::{self, Failure};
use std::time::Duration;
use ureq::http::{HeaderName, HeaderValue, Uri};

const PATH: &str = "/v1/metrics";
const DEFAULT: &str = "http://localhost:4318";
const TIMEOUT_MS: u64 = 10_000;
const INTERVAL_MS: u64 = 60_000;

pub struct Endpoint {
    pub url: String,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub is_compressed: bool,
    /// For a push with all its tries.
    pub timeout: Duration,
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Of our own environment; an empty one is none.
pub fn variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?.to_string_lossy().trim().to_owned();
    (!value.is_empty()).then_some(value)
}

impl Endpoint {
    /// `given`: empty where it is for the variables to say.
    pub fn find(given: &str, variable: Variable) -> Result<Endpoint, Failure> {
        let of_metrics = |name: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_METRICS_{name}");
            let general = format!("OTEL_EXPORTER_OTLP_{name}");
            variable(&own).map(|value| (own, value)).or_else(|| Some((general.clone(), variable(&general)?)))
        };
        let url = match of_metrics("ENDPOINT") {
            _ if !given.is_empty() => url_check("", given, true)?,
            Some((name, value)) if name == "OTEL_EXPORTER_OTLP_ENDPOINT" => {
                url_check(&name, &format!("{}{PATH}", value.trim_end_matches('/')), false)?
            }
            Some((name, value)) => url_check(&name, &value, false)?,
            None => format!("{DEFAULT}{PATH}"),
        };
        match of_metrics("PROTOCOL") {
            Some((name, value)) if given.is_empty() && value != "http/protobuf" => {
                let value = text::quote(&value);
                return Err(Failure::usage(format!("{name} is {value}; this command speaks http/protobuf")));
            }
            _ => {}
        }
        let is_compressed = match of_metrics("COMPRESSION") {
            Some((name, value)) if !matches!(&*value, "gzip" | "none") => {
                ignored(&name, &value, "gzip or none");
                false
            }
            found => found.is_some_and(|(_, value)| value == "gzip"),
        };
        let headers = match of_metrics("HEADERS") {
            Some((name, value)) => headers(&name, &value)?,
            None => Vec::new(),
        };
        let timeout = of_metrics("TIMEOUT").and_then(|(name, value)| milliseconds(&name, &value));
        let timeout = timeout.unwrap_or(Duration::from_millis(TIMEOUT_MS));
        Ok(Endpoint { url, headers, is_compressed, timeout })
    }
}

/// How often values go out where the command line does not say.
pub fn interval(variable: Variable) -> Duration {
    const NAME: &str = "OTEL_METRIC_EXPORT_INTERVAL";
    let given = variable(NAME).and_then(|value| milliseconds(NAME, &value));
    given.unwrap_or(Duration::from_millis(INTERVAL_MS))
}

fn milliseconds(name: &str, value: &str) -> Option<Duration> {
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    let number = value.parse::<u64>().ok().filter(|number| (1..=DAY_MS).contains(number));
    if number.is_none() {
        ignored(name, value, "a number of milliseconds, a day at most");
    }
    number.map(Duration::from_millis)
}

fn ignored(name: &str, value: &str, wanted: &str) {
    text::line_to_stderr(&format!("hakmem: {name}={} is not {wanted}: it is ignored", text::quote(value)));
}

fn url_check(name: &str, given: &str, is_base: bool) -> Result<String, Failure> {
    let of = if name.is_empty() { String::new() } else { format!("{name}: ") };
    let bad = |what: &str| Failure::usage(format!("{of}{} {what}", text::quote(given)));
    let is_url = given.contains("://");
    let Ok(uri) = given.parse::<Uri>() else { return Err(bad("is no URL")) };
    match uri.scheme_str() {
        _ if !is_url => return Err(bad("is no URL; http://HOST:4318 is one")),
        Some("http") => {}
        Some("https") => {
            return Err(bad("asks for https, which this command does not speak; \
                            a collector beside the process does, and takes http://localhost:4318"));
        }
        _ => return Err(bad("is no URL of http")),
    }
    let host = uri.host().unwrap_or_default();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(Failure::usage(format!(
            "{of}a URL with a password is not taken; OTEL_EXPORTER_OTLP_HEADERS is for it"
        )));
    }
    let port = authority.strip_prefix(host).unwrap_or_default();
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if host.is_empty() || !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return Err(bad("names no host and port"));
    }
    if is_base && matches!(uri.path(), "" | "/") && uri.query().is_none() {
        return Ok(format!("{}{PATH}", given.split('#').next().unwrap_or_default().trim_end_matches('/')));
    }
    Ok(given.to_owned())
}

fn headers(name: &str, value: &str) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    // A header may be a password: it is not said again.
    let bad = || Failure::usage(format!("{name} is no list of name=value that can be headers"));
    let pairs = otlp::pairs(value).ok_or_else(bad)?;
    let header = |(name, value): (String, String)| Some((name.parse().ok()?, value.parse().ok()?));
    pairs.into_iter().map(header).collect::<Option<_>>().ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(given: &str, variables: &[(&str, &str)]) -> Result<Endpoint, Failure> {
        let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Endpoint::find(given, &value)
    }

    fn url(given: &str, variables: &[(&str, &str)]) -> String {
        find(given, variables).map_or_else(|failure| failure.line, |endpoint| endpoint.url)
    }

    const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const OWN: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";

    #[test]
    fn the_path_is_as_the_specification_has_it() {
        for (given, variables, wanted) in [
            ("", &[][..], "http://localhost:4318/v1/metrics"),
            ("http://h:1", &[(OWN, "http://other/x")], "http://h:1/v1/metrics"),
            ("http://h:1/", &[], "http://h:1/v1/metrics"),
            ("http://h:1/otlp/x", &[], "http://h:1/otlp/x"),
            ("HTTP://[::1]:4318", &[], "HTTP://[::1]:4318/v1/metrics"),
            ("", &[(BASE, "http://b:4318")], "http://b:4318/v1/metrics"),
            ("", &[(BASE, "http://b/otlp/")], "http://b/otlp/v1/metrics"),
            ("", &[(BASE, "http://b"), (OWN, "http://m:9/x")], "http://m:9/x"),
            ("", &[(OWN, "http://m:9")], "http://m:9"),
        ] {
            assert_eq!(url(given, variables), wanted);
        }
    }

    #[test]
    fn a_bad_url_is_one_line() {
        for (given, said) in [
            ("localhost:4318", "is no URL; http://HOST:4318 is one"),
            ("collector", "is no URL; http://HOST:4318 is one"),
            ("https://h:4318", "asks for https"),
            ("ftp://h/", "is no URL of http"),
            ("http://", "is no URL"),
            ("http://h:99999", "names no host and port"),
            ("http://h:0", "names no host and port"),
            ("http://a b/", "is no URL"),
            ("http://me:secret@h/", "a URL with a password is not taken"),
        ] {
            let failure = find(given, &[]).err().unwrap();
            assert!(failure.line.contains(said) && failure.status == 2, "{given}: {}", failure.line);
            assert_eq!(failure.line.lines().count(), 1);
        }
        assert!(
            url("", &[(BASE, "h:4318")]).starts_with("OTEL_EXPORTER_OTLP_ENDPOINT: h:4318/v1/metrics is")
        );
    }

    #[test]
    fn variables_say_the_rest() {
        let endpoint = find(
            "http://h",
            &[
                ("OTEL_EXPORTER_OTLP_HEADERS", "api-key = a%20b%3D ,x=y"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
                ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), // not of the given one
            ],
        )
        .unwrap();
        let headers: Vec<_> =
            endpoint.headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        assert_eq!(headers, [("api-key", "a b="), ("x", "y")]);
        assert!(endpoint.is_compressed);
        assert_eq!(endpoint.timeout, Duration::from_millis(2500));
        for bad in ["x", "a b=c", "=x", "x=%ff", "x=a%0ab"] {
            let failure = find("http://h", &[("OTEL_EXPORTER_OTLP_HEADERS", bad)]).err().unwrap();
            assert!(failure.line.starts_with("OTEL_EXPORTER_OTLP_HEADERS is no list"), "{}", failure.line);
        }
        let failure = find("", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).err().unwrap();
        assert_eq!(failure.line, "OTEL_EXPORTER_OTLP_PROTOCOL is grpc; this command speaks http/protobuf");
        assert_eq!(find("http://h", &[]).unwrap().timeout, Duration::from_secs(10));
        assert_eq!(find("http://h", &[("OTEL_EXPORTER_OTLP_TIMEOUT", "0")]).unwrap().timeout.as_secs(), 10);
    }

    #[test]
    fn the_interval_is_a_minute_or_what_the_variable_says() {
        let with = |value: Option<&str>| {
            interval(&|name| value.filter(|_| name == "OTEL_METRIC_EXPORT_INTERVAL").map(str::to_owned))
        };
        assert_eq!(with(None), Duration::from_secs(60));
        assert_eq!(with(Some("200")), Duration::from_millis(200));
        assert_eq!(with(Some("soon")), Duration::from_secs(60));
    }
}
