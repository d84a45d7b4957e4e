#!/usr/bin/env python3
"""otlp.py - `hakmem metrics --otlp` sends a collector on loopback what `hakmem metrics` prints, as OpenTelemetry's messages, until the process
ends: what the collector refuses, puts off, takes in part or never sees is told in a line. ctest: timeout=300"""
import gzip
import http.server
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

from seeing_lib import Bench, check, eventually

HOLDS = "import sys\nheld = [bytes(i % 3000) for i in range(20000)]\nprint('ready', flush=True)\nsys.stdin.read()"
QUICK = {"OTEL_METRIC_EXPORT_INTERVAL": "200"}


# --- protobuf, as far as these messages need it -----------------------------------------------------

def varint(data, at):
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return number, at


def fields(data):
    """Of a message each field's number, and its value."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            length = 8
            if key & 7 == 2:
                length, at = varint(data, at)
            elif key & 7 != 1:
                raise ValueError(f"wire type {key & 7}")
            value, at = data[at:at + length], at + length
            if len(value) != length:
                raise ValueError("cut short")
        yield key >> 3, value


def many(data, number):
    return [value for found, value in fields(data) if found == number]


def one(data, number, otherwise=b""):
    return (many(data, number) or [otherwise])[-1]


def attributes(messages):
    """KeyValue: 1 key, 2 AnyValue (1 string, 3 int)."""
    found = {}
    for message in messages:
        value = one(message, 2)
        found[one(message, 1).decode()] = one(value, 1).decode() if many(value, 1) else one(value, 3)
    return found


def decoded(body):
    """The resource's attributes, the scope's name, and of each metric unit, kind and points by size class."""
    resource_metrics, = many(body, 1)
    scope_metrics, = many(resource_metrics, 2)
    metrics = {}
    for message in many(scope_metrics, 2):
        name, unit = one(message, 1).decode(), one(message, 3).decode()
        kind = "gauge" if many(message, 5) else "sum"
        data = one(message, 5 if kind == "gauge" else 7)
        if kind == "sum":
            check_quietly(one(data, 2, 0) == 2 and one(data, 3, 0) == 1, name + " is cumulative and monotonic")
        points = {}
        for point in many(data, 1):
            number = struct.unpack("<q", one(point, 6))[0] if many(point, 6) else struct.unpack("<d", one(point, 4))[0]
            start, moment = (struct.unpack("<Q", one(point, field, bytes(8)))[0] for field in (2, 3))
            points[attributes(many(point, 7)).get("hakmem.class.block_size")] = (number, start, moment)
        check_quietly(name not in metrics, name + " is there once")
        metrics[name] = (unit, kind, points)
    return attributes(many(one(resource_metrics, 1), 1)), one(one(scope_metrics, 1), 1).decode(), metrics


def of_json(text):
    """The same of JSON."""
    resource_metrics, = json.loads(text)["resourceMetrics"]
    scope_metrics, = resource_metrics["scopeMetrics"]

    def pairs(given):
        return {pair["key"]: int(v["intValue"]) if "intValue" in (v := pair["value"]) else v["stringValue"] for pair in given}

    metrics = {}
    for metric in scope_metrics["metrics"]:
        kind = "gauge" if "gauge" in metric else "sum"
        points = {}
        for point in metric[kind]["dataPoints"]:
            number = int(point["asInt"]) if "asInt" in point else point["asDouble"]
            points[pairs(point["attributes"]).get("hakmem.class.block_size")] = (
                number, int(point["startTimeUnixNano"]), int(point["timeUnixNano"]))
        metrics[metric["name"]] = (metric["unit"], kind, points)
    return pairs(resource_metrics["resource"]["attributes"]), scope_metrics["scope"]["name"], metrics


def check_quietly(holds, what):
    if not holds:
        check(False, what)


# --- a collector ---------------------------------------------------------------------------------------

class Collector:
    """Answers what it is told to, one after another, then 200, and keeps what it got."""

    def __init__(self, *answers, port=0):
        self.requests, self.answers, self.lock = [], list(answers), threading.Lock()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with collector.lock:
                    collector.requests.append((time.monotonic(), self.path, self.headers, body))
                    status, headers, said = collector.answers.pop(0) if collector.answers else (200, {}, b"")
                self.send_response(status)
                for name, value in {"Content-Type": "application/x-protobuf", "Content-Length": str(len(said)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def has(self, count):
        return eventually(lambda: len(self.requests) >= count, 60)

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def sending(bench, child, *arguments, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HAKMEM", "OTEL_")) and k.lower() not in ("http_proxy", "all_proxy")}
    environment.update(QUICK)
    environment.update(variables, HAKMEM_LIB=bench.library)
    environment.pop("LD_PRELOAD", None)
    return subprocess.Popen([bench.command, "metrics", "-p", str(child.pid), *arguments], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(command, status, timeout=120):
    """What it said on standard error, when it has ended as it ought to."""
    stdout, stderr = command.communicate(timeout=timeout)
    if command.returncode != status or stdout:
        check(False, f"status {command.returncode}, not {status}\n{stdout}{stderr}")
    return stderr.splitlines()


def holder(bench):
    return bench.start(sys.executable, "-c", HOLDS)


# --- what is checked ---------------------------------------------------------------------------------

def number_of(prometheus, series):
    return next(int(line.split()[-1]) for line in prometheus.splitlines() if line.split(" ")[0] == series)


def the_same_as_prometheus(bench, metrics, text):
    samples = [line for line in text.splitlines() if not line.startswith(("#", "hakmem_info{"))]
    points = sum(len(points) for _, _, points in metrics.values())
    check(points == len(samples) > 50, f"as many values as Prometheus's text has: {points} and {len(samples)}")
    for name, series, factor in (("hakmem.memory.small_live", "hakmem_small_live_bytes", 1),
                                 ("hakmem.recording.is_on", "hakmem_recording", 1),
                                 ("hakmem.recording.held", "hakmem_recording_held_ns_total", 1e9),
                                 ("hakmem.visit_new_slab", "hakmem_visit_new_slab_total", 1)):
        ours, theirs = metrics[name][2][None][0] * factor, number_of(text, series)
        check(abs(ours - theirs) <= 0.02 * theirs, f"{name} is {series}: {ours} and {theirs}")
    for bytes_, (number, _, _) in metrics["hakmem.class.live_blocks"][2].items():
        theirs = number_of(text, f'hakmem_class_live_blocks{{class_bytes="{bytes_}"}}')
        check_quietly(abs(number - theirs) <= 64 + 0.02 * theirs, f"live blocks of {bytes_} bytes: {number} and {theirs}")


def pushes_until_the_end(bench):
    child = holder(bench)
    collector = Collector()
    command = sending(bench, child, "--otlp", collector.url, OTEL_SERVICE_NAME="cart", OTEL_RESOURCE_ATTRIBUTES="team=a%2Cb,service.name=x",
                      OTEL_EXPORTER_OTLP_HEADERS="api-key=one%20two", OTEL_EXPORTER_OTLP_COMPRESSION="gzip")
    check(collector.has(3), "pushes come again and again")
    before_its_end = len(collector.requests) - 1
    text = bench.hakmem("metrics", "-p", str(child.pid)).stdout
    printed = bench.hakmem("metrics", "-p", str(child.pid), "--otlp-json").stdout
    bench.finish(child)
    said = ended(command, 0)
    collector.end()
    check(len(said) == 2 and said[0].endswith(f"{collector.url}/v1/metrics is sent the metrics of process {child.pid} every 200 ms")
          and said[1].endswith(f"process {child.pid} has ended"), "it says where to, and that it is over")
    moments = set()
    for _, path, headers, body in collector.requests:
        check_quietly(path == "/v1/metrics" and headers["Content-Type"] == "application/x-protobuf", f"{path} {headers}")
        check_quietly(headers["api-key"] == "one two" and headers["Content-Encoding"] == "gzip", f"headers {headers}")
        resource, scope, metrics = decoded(gzip.decompress(body))
        moments.add(metrics["hakmem.memory.resident"][2][None][2])
    _, _, metrics = decoded(gzip.decompress(collector.requests[before_its_end][3]))
    check(len(moments) == len(collector.requests), "each push is of a moment of its own")
    check(scope == "hakmem" and resource["service.name"] == "cart" and resource["team"] == "a,b" and resource["process.pid"] == child.pid
          and resource["host.name"] == socket.gethostname() and resource["process.executable.path"] == os.path.realpath(sys.executable),
          "the resource says whose they are")
    the_same_as_prometheus(bench, metrics, text)
    check(metrics["hakmem.memory.resident"][:2] == ("By", "gauge") and metrics["hakmem.visit_new_slab"][:2] == ("{slab}", "sum")
          and metrics["hakmem.recording.held"][:2] == ("s", "sum"), "units and kinds")
    _, start, moment = metrics["hakmem.visit_new_slab"][2][None]
    now = time.time_ns()
    check(now - 300 * 10**9 < start < moment <= now, "sums count since the process began")

    check(printed.count("\n") == 1, "JSON is one line")
    theirs, scope, of_printed = of_json(printed)
    check(scope == "hakmem" and theirs["service.name"] == os.path.basename(os.path.realpath(sys.executable)), "JSON's resource")
    check({name: (metric[:2], set(metric[2])) for name, metric in of_printed.items()} ==
          {name: (metric[:2], set(metric[2])) for name, metric in metrics.items()}, "JSON has the same metrics, units, kinds and classes")
    check(of_printed["hakmem.visit_new_slab"][2][None][1] == start or
          abs(of_printed["hakmem.visit_new_slab"][2][None][1] - start) < 10**9, "and the same start")
    the_same_as_prometheus(bench, of_printed, text)


def last_values_go_out(bench):
    child = holder(bench)
    collector = Collector()
    command = sending(bench, child, "--otlp", collector.url + "/own/path", "--every", "600")
    check(collector.has(1), "the first push comes at once")
    time.sleep(8)  # it is read again each five seconds
    bench.finish(child)
    ended(command, 0)
    collector.end()
    check([path for _, path, _, _ in collector.requests] == ["/own/path"] * 2, "the last values come at the end; a path stays as it is")


def tries_again(bench):
    child = holder(bench)
    collector = Collector((503, {"Retry-After": "2"}, b"busy\n"), (429, {}, b""), (500, {}, b"broken"))
    command = sending(bench, child, "--otlp", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url + "/base/",
                      OTEL_EXPORTER_OTLP_TIMEOUT="60000")
    check(collector.has(5), "it goes on after 503, 429 and 500")
    bench.finish(child)
    said = ended(command, 0)
    collector.end()
    (first, path, _, body), (second, _, _, again), (third, _, _, third_body), (fourth, _, _, fourth_body) = collector.requests[:4]
    check(path == "/base/v1/metrics", "the endpoint of the environment is a base")
    check(body == again == third_body, "what is tried again is the same request")
    check(2 <= second - first < 9, f"after what Retry-After says: {second - first:.2f} s")
    check(0.5 <= third - second < 9, f"or after a pause: {third - second:.2f} s")
    check(fourth_body != body, "500 is not tried again")
    check(sum("answers 503 Service Unavailable: busy; it is tried again" in line for line in said) == 1 and len(said) == 4
          and "takes metrics again; 1 push was lost" in said[2], "trouble and its end are told once\n" + "\n".join(said))


def refused(bench):
    child = holder(bench)
    message = b"no such tenant"
    collector = Collector((400, {}, b"\x08\x03\x12" + bytes([len(message)]) + message))
    said = ended(sending(bench, child, "--otlp", collector.url), 2)
    check(len(said) == 2 and said[1].endswith(f"{collector.url}/v1/metrics answers 400 Bad Request: no such tenant"), "400 is the end, in one line")
    check(len(collector.requests) == 1, "and is not tried again")
    collector.end()

    partial = b"\x0a\x0b\x08\x02\x12\x07too old"
    collector = Collector((200, {}, partial), (200, {}, partial), (200, {}, partial))
    command = sending(bench, child, "--otlp", collector.url)
    check(collector.has(4), "values refused in part are no reason to stop")
    bodies = [body for _, _, _, body in collector.requests]
    bench.finish(child)
    said = ended(command, 0)
    collector.end()
    check(sum("refused 2 values: too old" in line for line in said) == 1 and len(said) == 3, "and are told once")
    check(len(set(bodies)) == len(bodies), "and not sent again")


def nobody_listens(bench):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    child = holder(bench)
    command = sending(bench, child, "--otlp", f"http://127.0.0.1:{port}", OTEL_EXPORTER_OTLP_TIMEOUT="300")
    time.sleep(2)
    check(command.poll() is None, "it goes on where nobody listens")
    collector = Collector(port=port)
    check(collector.has(1), "and finds who listens later")
    collector.end()
    bench.finish(child)
    said = command.communicate(timeout=60)[1].splitlines()
    check("connection refused; it is tried again until process" in said[1] and any("takes metrics again" in line for line in said),
          "both are told\n" + "\n".join(said))

    child = holder(bench)
    command = sending(bench, child, "--otlp", f"http://127.0.0.1:{port}", OTEL_EXPORTER_OTLP_TIMEOUT="1500")
    time.sleep(1)
    bench.finish(child)
    said = ended(command, 2)
    check(len(said) == 3 and said[2].endswith(f"connection refused; the last values of process {child.pid} were not taken"),
          "at the process's end that is a failure\n" + "\n".join(said))

    with socket.socket() as mute:  # takes connections and says nothing
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        child = holder(bench)
        command = sending(bench, child, "--otlp", f"http://127.0.0.1:{mute.getsockname()[1]}", OTEL_EXPORTER_OTLP_TIMEOUT="500")
        time.sleep(1.5)
        bench.finish(child)
        check("did not answer within" in ended(command, 2)[1], "who does not answer is told of")


def wrong_words(bench):
    child = holder(bench)
    pid = str(child.pid)
    for arguments, line in ((("--otlp", "localhost:4318"), "localhost:4318 is no URL; http://HOST:4318 is one"),
                            (("--otlp", "https://localhost:4318"), "asks for https, which this command does not speak"),
                            (("--otlp", "http://h:99999"), "names no host and port"),
                            (("--otlp", "http://127.0.0.1:1", "--every", "0"), "0 is not in 1..=86400"),
                            (("--otlp", "http://127.0.0.1:1", "--every", "soon"), "invalid value 'soon'"),
                            (("--every", "5"), "--otlp [<URL>] is missing"),
                            (("--otlp-json", "--otlp"), "cannot be used with"),
                            (("--otlp", "--serve", "127.0.0.1:0"), "cannot be used with")):
        done = bench.hakmem("metrics", "-p", pid, *arguments, status=2)
        check(line in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, f"{' '.join(arguments)}: {done.stderr.strip()}")
    said = ended(sending(bench, child, "--otlp", OTEL_EXPORTER_OTLP_PROTOCOL="grpc"), 2)
    check(said == ["hakmem: OTEL_EXPORTER_OTLP_PROTOCOL is grpc; this command speaks http/protobuf"], said[0])
    bench.finish(child)
    done = bench.hakmem("metrics", "-p", pid, "--otlp", "http://127.0.0.1:1", status=2)
    check(f"there is no process {pid}" in done.stderr or "has ended" in done.stderr, "a process that has ended")


def main():
    with Bench() as bench:
        wrong_words(bench)
        pushes_until_the_end(bench)
        last_values_go_out(bench)
        tries_again(bench)
        refused(bench)
        nobody_listens(bench)


main()
