"""beside.py - workloads side by side: no figure was promised for them; time and memory are shown together.

A row here is (name, what it does, workload and arguments, quick arguments). One table for all: time, peak and resident
memory, faults, each against glibc and the best peer.
"""
from rows import MB, field_of, megabytes
from runner import median, pair_ratio

# name, workload, arguments, arguments when quick, field of the time, divide time by `ops`
WORKLOADS = [
    ("malloc + free, 64 B", "tiny_hot", (20000000, 64), (5000000, 64), "cpu_ns"),
    ("256 x 64 B, then freed", "pairs", (64, 256, 40000), (64, 256, 10000), "cpu_ns"),
    ("random sizes 16-1024, 4096 slots", "random_mixed", (10000000, 4096), (2000000, 4096), "cpu_ns"),
    ("random sizes 16-256, 65536 slots", "random_mixed", (10000000, 65536, 16, 256), (2000000, 65536, 16, 256),
     "cpu_ns"),
    ("random sizes 1-32 KiB, 1024 slots", "random_mixed", (4000000, 1024, 1024, 32768), (1000000, 1024, 1024, 32768),
     "cpu_ns"),
    ("larson, 4 threads", "larson", (1,), (1,), "wall_ns"),
    ("2-32 KiB, 2 threads", "mid_large_mt", (2, 1000000), (2, 200000), "wall_ns"),
    ("producer and consumer", "producer_consumer", (1, 3000000), (1, 1000000), "wall_ns"),
    ("buffers of 2 MiB", "vm", (5000,), (1000,), "cpu_ns"),
    ("growth by realloc", "realloc_growth", (20000, 128), (5000, 64), "cpu_ns"),
    ("calloc, half untouched", "calloc_half", (100,), (40,), "cpu_ns"),
]


def measure(stand, quick, say=print):
    """[{name, results: {variant: {ns, peak_mb, resident_mb, faults, ratio_to_glibc}}}]"""
    table = []
    for name, workload, full, brief, clock in WORKLOADS:
        say(f"  {name}", flush=True)
        arguments = brief if quick else full
        results = stand.interleaved(stand.variants(), 2 if quick else 3,
                                    lambda preload, w=workload, a=arguments: stand.work(preload, w, *a))
        per_op = {variant: [line[clock] / line["ops"] for line in lines] for variant, lines in results.items()}
        peak, resident = megabytes(results, "peak_kb"), megabytes(results, "resident_kb")
        faults = field_of(results, "faults")
        table.append({"name": name, "workload": workload, "arguments": arguments, "clock": clock, "variants": {
            variant: {"ns": median(per_op[variant]), "ns_min": min(per_op[variant]), "ns_max": max(per_op[variant]),
                      "against_glibc": pair_ratio(per_op[variant], per_op["glibc"]), "peak_mb": median(peak[variant]),
                      "resident_mb": median(resident[variant]), "faults": median(faults[variant])}
            for variant in results}})
    return table


def fork_pages(stand, say=print):
    """Pages that a child copies when it frees a random half of 512 MB of 64-byte blocks."""
    say("  fork, the child frees half of 512 MB", flush=True)
    results = stand.interleaved(stand.variants(), 1, lambda preload: stand.work(preload, "fork_cow"))
    return {variant: lines[0]["pages_copied"] for variant, lines in results.items()}


def peaks_5(stand, say=print):
    """Resident MB 12 s after three peaks with 5% long-lived blocks (47 MB live)."""
    say("  three peaks, 5% long-lived", flush=True)
    lines = stand.side_by_side(stand.variants(), 4, "three_peaks", 5)
    return {variant: line["resident_kb"] * 1024 / MB for variant, line in lines.items()}


def markdown(table, fork, peaks):
    lines = ["| workload | HAKMEM ns | of glibc's | best peer ns | HAKMEM peak MB | glibc | smallest peer | faults "
             "| glibc |", "|---|---|---|---|---|---|---|---|---|"]
    for one in table:
        own, glibc = one["variants"].get("hakmem"), one["variants"]["glibc"]
        if not own:
            continue
        rivals = {name: value for name, value in one["variants"].items() if name != "hakmem"}
        best = min(rivals, key=lambda name: rivals[name]["ns"])
        least = min(rivals, key=lambda name: rivals[name]["peak_mb"])
        lines.append(f"| {one['name']} | {own['ns']:,.1f} ({own['ns_min']:,.1f}-{own['ns_max']:,.1f}) "
                     f"| {own['against_glibc']:.2f} | {rivals[best]['ns']:,.1f} {best} | {own['peak_mb']:.1f} "
                     f"| {glibc['peak_mb']:.1f} | {rivals[least]['peak_mb']:.1f} {least} | {own['faults']:,.0f} "
                     f"| {glibc['faults']:,.0f} |")


    def listed(values, digits):
        rising = sorted(values.items(), key=lambda item: item[1])
        return ", ".join(f"{name} {value:,.{digits}f}" for name, value in rising)

    lines += ["", f"Fork, the child frees a random half of 512 MB of 64-byte blocks; pages copied: {listed(fork, 0)}.",
              "", f"Three peaks of 300 MB with 5% long-lived blocks, resident MB 12 s later: {listed(peaks, 0)}."]
    return "\n".join(lines)
