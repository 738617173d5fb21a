#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`fathom attribute` as its readers see it: the document, the page and the trace of one run.

The trace is decoded by a protobuf reader of its own, the page is looked at by headless Chromium where that is
installed. usage: attribute_test.py PROGRAM
"""
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

DEPTHS = [16, 96, 384]


def fields(data):
    """(number, value) of a protobuf message: ints, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            assert at + size <= len(data), "a field is longer than its message"
            yield key >> 3, data[at:at + size]
            at += size
        else:
            raise AssertionError(f"wire type {key & 7}")


def slices_of(trace):
    """{track name: [(name, start, end, notes)]}, the lanes' parents resolved; slices of a lane must nest."""
    names, parents, open_slices, found = {}, {}, {}, {}
    for number, packet in fields(trace):
        assert number == 1
        packet = dict(fields(packet))
        assert packet[10] == 1, "one trusted sequence"
        if 60 in packet:
            track = dict(fields(packet[60]))
            names[track[1]] = track[2].decode()
            parents[track[1]] = track.get(5)
            continue
        event, notes = {}, {}
        for key, value in fields(packet[11]):
            if key == 4:
                note = dict(fields(value))
                notes[note[10].decode()] = note[6].decode()
            else:
                event[key] = value
        lane = event[11]
        if event[9] == 1:
            assert lane not in open_slices, "slices of a lane overlap"
            open_slices[lane] = (event[23].decode(), packet[8], notes)
        else:
            name, start, notes = open_slices.pop(lane)
            assert start <= packet[8]
            found.setdefault(names[parents[lane]], []).append((name, start, packet[8], notes))
    assert not open_slices
    return found


class Page(html.parser.HTMLParser):
    VOID = {"meta", "br", "link"}

    def __init__(self):
        super().__init__()
        self.stack, self.ids, self.data, self.titles = [], [], "", 0

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        for name in ("src", "href"):
            assert name not in attrs, f"<{tag} {name}> would leave the file"
        if "id" in attrs:
            self.ids.append(attrs["id"])
        self.titles += tag == "title"
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack and self.stack.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "script":
            self.data += data


def check_page(text, document):
    page = Page()
    page.feed(text)
    assert not page.stack, page.stack
    assert {"waterfall", "depths", "roofline", "layers", "data"} <= set(page.ids), page.ids
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\((?!#)", text.split("<script")[0])
    assert "<" not in page.data
    assert json.loads(page.data)["summary"]["attribution"]["depths"] == document["summary"]["attribution"]["depths"]
    assert "prefers-color-scheme:dark" in text and "@media print" in text


def check_in_chromium(path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        print("no Chromium here: the page was not opened")
        return
    with tempfile.TemporaryDirectory() as profile:
        run = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--enable-logging=stderr",
             "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000", "--dump-dom", f"file://{path}"],
            capture_output=True, text=True, timeout=300, check=True)
    assert run.stdout.count("<svg") >= 4, "the drawings are not in the page"
    assert "CONSOLE" not in run.stderr, run.stderr


def check_document(document, status):
    a = document["summary"]["attribution"]
    closure = a["closure"]
    total = sum(op["growth"]["ns"] for op in a["ops"]) + a["idle"]["growth"]["ns"]
    assert abs(total - closure["sum"]["ns"]) < 1, "the rows do not add up to the sum"
    left = closure["growth"]["ns"] - (closure["sum"]["ns"] - closure["correction_ns"])
    assert abs(left - closure["residual"]["ns"]) < 1
    launches = sum(launch["growth"]["ns"] for launch in a["launches"])
    assert abs(launches + a["idle"]["growth"]["ns"] - total) < 1
    assert [d["depth"] for d in a["depths"]] == DEPTHS
    gates = {gate["id"] for gate in document["gates"]}
    assert {"additivity", "aa_noise", "overhead", "anchor", "plan", "clock_drift", "ceiling"} <= gates, gates
    trusted = all(gate["pass"] for gate in document["gates"])
    assert status == (0 if trusted else 4), (status, trusted)
    assert trusted or not a["diagnoses"], "a diagnosis in spite of a gate that failed"
    for sample in document["samples"]:
        if sample["arm"] == "traced":
            assert sum(sample["exclusive_ns"]) + sum(sample["gap_ns"]) == sample["span_ns"]


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "FATHOM_CACHE": str(folder)}
        model, page, trace = folder / "tiny.gguf", folder / "page.html", folder / "trace.pftrace"
        subprocess.run([program, "synth", model, "--shape", "tiny-llama", "--type", "q8_0", "-q"], env=env, check=True)
        for extra in ([], ["--separate"]):
            run = subprocess.run(
                [program, "attribute", model, "--depths", ",".join(map(str, DEPTHS)), "--seconds", "0.5", "-q", "--json",
                 "--html", page, "--perfetto", trace, *extra], env=env, capture_output=True, text=True)
            assert run.returncode in (0, 4), run.stderr
            document = json.loads(run.stdout)
            check_document(document, run.returncode)
            check_page(page.read_text(), document)
            tracks = slices_of(trace.read_bytes())
            assert set(tracks) == {f"step at depth {DEPTHS[0]}", f"step at depth {DEPTHS[-1]}"}, set(tracks)
            for slices in tracks.values():
                assert {"embed", "attn", "norm_head"} <= {name for name, *_ in slices}
                assert {notes.get("layer") for name, _, _, notes in slices if name == "attn"} >= {"0", "1"}
        check_in_chromium(page)
    print("attribute: document, page and trace are sound")


if __name__ == "__main__":
    main()
