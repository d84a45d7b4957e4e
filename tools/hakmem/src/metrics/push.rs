//! push.rs - readings of a process on their way to a collector, OTLP over HTTP, until the process ends.
//!
//! Source:  opentelemetry.io/docs/specs/otlp: 429, 502, 503, 504 and no answer are tried again, after what Retry-After says or
//!          after pauses that double; nothing else is. A push has OTEL_EXPORTER_OTLP_TIMEOUT for all its tries, as exporters have
//!          it; then its values are dropped, and the next push brings newer ones.
//! The end: of a process that has ended nothing can be read. So it is read at least each five seconds, and what was read last and not
//!          taken goes out at its end.
//! Told:    once when a collector stops taking values and once when it takes them again; values that it refuses in part, once.

use super::otlp::{Subject, request};
use super::{Endpoint, Reading, variable};
use crate::recording::attach::{Attached, State};
use crate::system::error_text;
use crate::text::{self, Failure};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};
use ureq::http::StatusCode;

const LOOK_EVERY_MAX: Duration = Duration::from_secs(5);
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// How soon the process's end is seen.
const POLL: Duration = Duration::from_millis(50);
/// A connection stays for the next push, where the collector keeps it.
const IDLE_AGE_MAX: Duration = Duration::from_secs(120);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// What became of one request.
#[derive(Debug, PartialEq)]
enum Answer {
    /// With what the collector has to say of it.
    Taken(Option<String>),
    Later {
        reason: String,
        after: Option<Duration>,
    },
    /// By a collector with a fault of its own: the next may be taken.
    Dropped(String),
    /// As the next would be.
    Refused(String),
}

pub fn push(attached: &Attached, endpoint: Endpoint, every: Duration) -> Result<u8, Failure> {
    let pid = attached.process.pid;
    let url = endpoint.url.clone();
    let subject = Subject::of(pid, &variable);
    let mut sender = Sender::new(endpoint);
    let mut unsent = Some(Reading::take(attached)?);
    text::line_to_stderr(&format!(
        "hakmem: {url} is sent the metrics of process {pid} every {}",
        said(every)
    ));
    let (mut look_at, mut push_at) = (Instant::now() + every.min(LOOK_EVERY_MAX), Instant::now());
    loop {
        let now = Instant::now();
        let is_alive = attached.process.is_alive();
        if is_alive && (now >= look_at || now >= push_at) {
            look_at = now + every.min(LOOK_EVERY_MAX);
            match Reading::take(attached) {
                Ok(reading) => unsent = Some(reading),
                Err(failure) if attached.state() == State::Gone => {
                    if let Some(reading) = unsent.take() {
                        sender.deliver(&request(&reading, &subject).encode_to_vec(), pid)?;
                    }
                    return Err(failure);
                }
                Err(_) => {} // it ends, or may not be read for once
            }
        }
        if let Some(reading) = unsent.take_if(|_| now >= push_at || !is_alive) {
            let body = request(&reading, &subject).encode_to_vec();
            if !sender.deliver(&body, pid)? {
                unsent = Some(reading);
            }
            // What was missed meanwhile is not made up for.
            while push_at <= Instant::now() {
                push_at += every;
            }
            push_at = push_at.max(sender.not_before);
        }
        if !is_alive {
            break;
        }
        sleep(POLL.min(every));
    }
    if let Some(trouble) = sender.trouble {
        return Err(Failure::usage(format!(
            "{url}: {trouble}; the last values of process {pid} were not taken"
        )));
    }
    text::line_to_stderr(&format!("hakmem: process {pid} has ended"));
    Ok(0)
}

fn said(every: Duration) -> String {
    match every.subsec_millis() {
        0 => format!("{} s", every.as_secs()),
        _ => format!("{} ms", every.as_millis()),
    }
}

struct Sender {
    agent: ureq::Agent,
    endpoint: Endpoint,
    /// Why the last push was not taken.
    trouble: Option<String>,
    lost_count: u64,
    was_told: bool, // of values that were refused in part
    not_before: Instant,
}

impl Sender {
    fn new(endpoint: Endpoint) -> Sender {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_idle_age(IDLE_AGE_MAX)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("hakmem/", env!("CARGO_PKG_VERSION")))
            .build();
        let not_before = Instant::now();
        let agent = config.new_agent();
        Sender { agent, endpoint, trouble: None, lost_count: 0, was_told: false, not_before }
    }

    /// Whether it was taken, or need not be sent again; an error where nothing ever will be.
    fn deliver(&mut self, body: &[u8], pid: u32) -> Result<bool, Failure> {
        let body = if self.endpoint.is_compressed { compressed(body) } else { body.to_vec() };
        let until = Instant::now() + self.endpoint.timeout;
        let mut pause = PAUSE_FIRST;
        loop {
            if self.not_before >= until {
                self.lost_count += 1;
                return Ok(false);
            }
            sleep(self.not_before.saturating_duration_since(Instant::now()));
            let left = until.saturating_duration_since(Instant::now());
            let url = &self.endpoint.url;
            let (reason, is_again) = match self.post(&body, left.max(Duration::from_millis(100))) {
                Answer::Taken(said) => {
                    self.is_taken(said);
                    return Ok(true);
                }
                Answer::Refused(reason) => return Err(Failure::usage(format!("{url} {reason}"))),
                Answer::Dropped(reason) => (reason, false),
                Answer::Later { reason, after } => {
                    let wait = after.unwrap_or_else(|| jittered(pause)).min(RETRY_AFTER_MAX);
                    self.not_before = Instant::now() + wait;
                    (reason, true)
                }
            };
            if self.trouble.is_none() {
                text::line_to_stderr(&format!(
                    "hakmem: {url} {reason}; it is tried again until process {pid} ends"
                ));
            }
            self.trouble = Some(reason);
            if !is_again {
                self.lost_count += 1;
                return Ok(true);
            }
            pause *= 2;
        }
    }

    fn is_taken(&mut self, said: Option<String>) {
        let url = &self.endpoint.url;
        if self.trouble.take().is_some() {
            let lost = match self.lost_count {
                0 => "nothing was lost".to_owned(),
                count => format!("{} lost", text::counted(count, "push was", "pushes were")),
            };
            text::line_to_stderr(&format!("hakmem: {url} takes metrics again; {lost}"));
            self.lost_count = 0;
        }
        if let Some(said) = said.filter(|_| !self.was_told) {
            self.was_told = true;
            text::line_to_stderr(&format!("hakmem: {url} {said}"));
        }
    }

    fn post(&self, body: &[u8], patience: Duration) -> Answer {
        let mut builder =
            self.agent.post(&self.endpoint.url).header("Content-Type", "application/x-protobuf");
        if self.endpoint.is_compressed {
            builder = builder.header("Content-Encoding", "gzip");
        }
        for (name, value) in &self.endpoint.headers {
            builder = builder.header(name, value);
        }
        let mut response = match builder.config().timeout_global(Some(patience)).build().send(body) {
            Ok(response) => response,
            Err(error) => return unanswered(error, patience),
        };
        let header = |name| Some(response.headers().get(name)?.to_str().ok()?.trim().to_owned());
        let after = header("retry-after").and_then(|value| value.parse().ok()).map(Duration::from_secs);
        let limited = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        answer(response.status(), &limited.unwrap_or_default(), after)
    }
}

fn compressed(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    // To memory: nothing is refused.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

/// A half to one and a half of it, so that many commands do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1000;
    pause / 2 + pause * u32::try_from(random).unwrap_or(0) / 1000
}

fn unanswered(error: ureq::Error, patience: Duration) -> Answer {
    let reason = match error {
        ureq::Error::Io(error) => format!("does not answer: {}", error_text(&error)),
        ureq::Error::Timeout(_) => format!("did not answer within {}", text::seconds(patience)),
        ureq::Error::HostNotFound => "does not answer: there is no such host".to_owned(),
        ureq::Error::ConnectionFailed => "does not answer: no connection".to_owned(),
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            return Answer::Refused(format!("cannot be asked: {error}"));
        }
        other => format!("does not answer in HTTP: {other}"),
    };
    Answer::Later { reason, after: None }
}

/// google.rpc.Status, as far as it is for people.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

fn answer(status: StatusCode, body: &[u8], after: Option<Duration>) -> Answer {
    if status.is_success() {
        // What cannot be read is no reason to think that nothing was taken.
        let part =
            ExportMetricsServiceResponse::decode(body).ok().and_then(|response| response.partial_success);
        let said = part.filter(|part| part.rejected_data_points != 0 || !part.error_message.is_empty());
        return Answer::Taken(said.map(|part| {
            let message = one_line(&part.error_message);
            match u64::try_from(part.rejected_data_points) {
                Ok(0) | Err(_) => format!("took all, and says: {message}"),
                Ok(count) => format!("refused {}: {message}", text::counted(count, "value", "values")),
            }
        }));
    }
    let named = status
        .canonical_reason()
        .map_or(status.as_str().to_owned(), |name| format!("{} {name}", status.as_str()));
    let message = match Status::decode(body) {
        Ok(said) => one_line(&said.message),
        Err(_) => one_line(&String::from_utf8_lossy(body)),
    };
    let message = if message.is_empty() { message } else { format!(": {message}") };
    let reason = format!("answers {named}{message}");
    match status.as_u16() {
        429 | 502 | 503 | 504 => Answer::Later { reason, after },
        500.. => Answer::Dropped(reason),
        _ => Answer::Refused(reason),
    }
}

/// What another says, short and without a terminal's codes.
fn one_line(said: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let line = said.trim().lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;

    fn answered(status: u16, body: &[u8]) -> Answer {
        answer(StatusCode::from_u16(status).unwrap(), body, None)
    }

    #[test]
    fn what_may_be_tried_again_is_as_the_specification_has_it() {
        for status in [429, 502, 503, 504] {
            assert!(matches!(answered(status, b""), Answer::Later { .. }), "{status}");
        }
        for status in [500, 501, 505] {
            assert!(matches!(answered(status, b""), Answer::Dropped(_)), "{status}");
        }
        for status in [301, 307, 400, 401, 403, 404, 405, 408, 413, 415] {
            assert!(matches!(answered(status, b""), Answer::Refused(_)), "{status}");
        }
        assert_eq!(answered(202, b"\xff not protobuf"), Answer::Taken(None));
        let after = Some(Duration::from_secs(7));
        let reason = "answers 503 Service Unavailable".to_owned();
        assert_eq!(answer(StatusCode::SERVICE_UNAVAILABLE, b"", after), Answer::Later { reason, after });
    }

    #[test]
    fn what_a_collector_says_is_told_on_one_line() {
        let status = Status { code: 3, message: "no \x1b[31msuch field\nin it".to_owned() }.encode_to_vec();
        let said = "answers 400 Bad Request: no [31msuch field".to_owned();
        assert_eq!(answered(400, &status), Answer::Refused(said));
        let said = "answers 404 Not Found: 404 page not found".to_owned();
        assert_eq!(answered(404, b"404 page not found\n"), Answer::Refused(said));
        let part = |rejected_data_points, error_message: &str| {
            let error_message = error_message.to_owned();
            let partial_success = Some(ExportMetricsPartialSuccess { rejected_data_points, error_message });
            answered(200, &ExportMetricsServiceResponse { partial_success }.encode_to_vec())
        };
        assert_eq!(part(0, ""), Answer::Taken(None));
        assert_eq!(part(2, "too old"), Answer::Taken(Some("refused 2 values: too old".to_owned())));
        assert_eq!(part(0, "slow down"), Answer::Taken(Some("took all, and says: slow down".to_owned())));
    }

    #[test]
    fn pauses_differ_by_chance_and_stay_near_what_they_are() {
        let pauses: Vec<_> = (0..50).map(|_| jittered(Duration::from_secs(2))).collect();
        assert!(pauses.iter().all(|pause| (1000..3000).contains(&pause.as_millis())), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
