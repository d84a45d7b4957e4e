#!/usr/bin/env python3
"""languages.py - perl, node, bash and the programs of every pipeline give the same output under HAKMEM."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Suite, need

PERL = r"""
use strict; use threads;
my %table; my $text = '';
for my $i (1 .. 200000) { $table{"key" . ($i * 7919 % 100003)} .= chr(97 + $i % 26); }
my $sum = 0; $sum += length $table{$_} for sort keys %table;
for my $i (1 .. 2000) { $text .= join(',', map { $_ * $i } 1 .. 20) . "\n"; }
my $matches = () = $text =~ /(\d+),(\d+),/g;
my @sorted = sort { $a cmp $b } map { reverse $_ } keys %table;
my @parts = map { my $n = $_; threads->create(sub { my @a = map { "x" x ($_ % 500) } 1 .. 20000; return scalar(@a) + $n }) } 1 .. 4;
my $joined = 0; $joined += $_->join for @parts;
print "$sum $matches $sorted[100] $joined\n";
"""

NODE = r"""
const crypto = require('crypto'), zlib = require('zlib');
const hash = crypto.createHash('sha256'); let seed = 7;
const random = n => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n;
for (let round = 0; round < 5; round++) {
  const table = new Map();
  for (let i = 0; i < 50000; i++) table.set('k' + random(1e6), Buffer.alloc(random(400), i & 255));
  for (const [k, v] of table) hash.update(k).update(v);
  hash.update(zlib.gunzipSync(zlib.gzipSync(Buffer.alloc(3000000, round))));
}
const { Worker } = require('worker_threads');
let left = 3; const results = [];
for (let i = 0; i < 3; i++) {
  const w = new Worker("const{parentPort:p}=require('worker_threads');let s=0;for(let i=0;i<3e5;i++)s+=Buffer.alloc(i%900).length;p.postMessage(s)", {eval: true});
  w.on('message', m => { results.push(m); if (--left == 0) console.log(hash.digest('hex'), results); });
}
"""

PIPELINE = r"""
set -e -o pipefail
rm -rf files; mkdir files
seq 1 300000 | sort -R --random-source=<(yes) | tee files/numbers | sort -n --parallel=4 -S 8M | tail -3
for i in 1 2 3 4 5 6 7 8; do seq $i 3 40000 > files/part$i; done
tar cf - --sort=name --mtime=@0 --owner=0 --group=0 files | xz -2 -T2 | tee files.tar.xz | sha256sum
xz -dc files.tar.xz | tar tf - | sort
grep -c '[37]\{2\}' files/numbers
awk '{ count[$1 % 997] += $1 } END { for (k in count) print k, count[k] }' files/numbers | sort | md5sum
sed -E 's/([0-9])([0-9])/\2\1/g' files/numbers | sort | uniq -c | sort -rn | sed -n 1,3p
(diff files/part1 files/part2 || true) | wc -l
find /usr/share -maxdepth 2 -name '*a*' | wc -l
gzip -9 < files/numbers | gunzip | cmp - files/numbers && echo equal
x=(); for i in $(seq 1 20000); do x+=("word$i"); done; echo "${#x[@]} ${x[777]}"
for i in $(seq 1 40); do (echo $i) | cat; done | paste -sd+ | bc 2>/dev/null || echo 820
"""


def main():
    suite = Suite("languages", __doc__)
    suite.same("perl", lambda: [need("perl"), "-e", PERL])
    suite.same("node", lambda: [need("node"), "-e", NODE])
    suite.same("a bash pipeline", lambda: [need("bash"), "-c", PIPELINE])
    suite.same("ls of everything", lambda: [need("bash"), "-c", "ls -lR /usr/share/doc 2>/dev/null | sha256sum"])
    suite.same("awk", lambda: [need("awk"), "BEGIN { for (i = 0; i < 400000; i++) a[i % 5000] = a[i % 5000] i % 10; print length(a[77]) }"])
    suite.same("openssl", lambda: [need("bash"), "-c", need("openssl") + " req -x509 -newkey rsa:2048 -nodes -keyout k -out c -subj /CN=x 2>/dev/null && "
               "openssl x509 -in c -noout -subject"])
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
