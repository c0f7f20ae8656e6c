"""The page about slowbench, from its scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.slowbench import tables
from benchmarks.slowbench.causes import BY_ID
from benchmarks.slowbench.tables import OURS, Case
from benchmarks.slowbench.words import BOUNDS, WORDS

EXPLANATIONS = Path(__file__).with_name("explanations.json")
"""Why traceprobe was wrong, by the id of the case, written by hand."""

SPLITS = ("sealed", "open")
NEWEST = 569139
"""The seed that was drawn after the last rule was written; those before changed rules."""

PAGE = """# How often is a diagnosis right?

Training programs with nothing left to mend get a cause of slowness, or none, or two, and are
recorded. Every tool that reads such a recording is asked what holds the run back. The causes, what
they cost a step without a profiler, and the lines that they are in, are known; what a tool says is
held against that. Anyone can [run it](#how-it-is-run).

This page is made by `python -m benchmarks.slowbench page` from
[`slowbench.json`](validation/slowbench.json).

- **Felt.** A cause counts where it makes the step longer by 5 % and by 0.3 ms, by the least that
  was measured in interleaved blocks. Cases of which that is not so, and those without a cause,
  are counted apart.
- **Open and sealed.** Open cases were there when rules were written. Sealed ones are of a seed
  that is not in the repository: other programs, strengths and sizes, drawn anew; they are scored
  once.
- **Class.** io, communication, overhead or compute, as [definitions](definitions.md) has them; of
  two causes that of the larger. The verdict has to name it. A cause with less than 20 % of the
  step bounds no run: there the first thing that the tool says may be of that class instead.
- **Cause.** A tool's own words stand for causes by a [published table](#words), with the benefit
  of the doubt. Vague words stand for many; how many the first thing said stands for is in the
  tables. A word that names no cause takes no place. Of two causes, the better place counts.
- **Line.** Of the causes that are in a line: its place among all lines that the tool names.
  *Rank*: of the causes that are on one rank, it blames that one.
- **No answer** is not wrong: the tool cannot read the recording, or has no word for the cause,
  the class, or for alarms. Shares are of answers, with their 95 % interval by Wilson's score.
- **False alarms.** Healthy runs of which the tool asks for a look: a warning, or worse, that
  names a cause or promises a gain. traceprobe's count from 5 % of the step on, by what it
  predicts, or by its upper bound where it predicts nothing.
"""
RUN = """## How it is run

```console
python -m benchmarks.slowbench record --out DIR --split open --seed 1 --cases 240   # where a GPU is
python -m benchmarks.slowbench traceml DIR --venv ~/peers/traceml                   # there, too
python -m benchmarks.slowbench score DIR --hta ~/peers/hta --nsys-ai ~/peers/nsys-ai --nsys nsys
python -m benchmarks.slowbench page
```

The recordings of this page are in `benchmarks/slowbench/captures/h200`, called after the first
machine. Seed 8 is of two ranks. Seeds 1, 2, 115322, 393488 and 501468 were taken out for room:
controls of theirs were not tuned, or lost much of their step to the host. Of those up to 840577
only cases are left whose cause few others of their format have, and of 954546 some; the numbers
are of all that were asked about.

Seed 615294 was sealed until it was scored, before anybody looked at its 172 recordings: with the
words of that day 85 of 106 causes were first, four causes having no word, and the class was right
in 106 of 108. What it missed changed these rules: `recomputation` by kernels of fused attention;
`double-precision` (new); `graph-breaks` of models of which little is left compiled;
`allocator-stalls` and verdicts of two iterations; pauses before the end of a loss; waits that come
in bursts; optimizers known by `addcdiv`; lines of `unaligned-matmul`; predictions for loaders. Then
what all open recordings cost changed how predictions treat pauses, calls for memory, full queues,
and products in fp32 or unaligned. The tables of open cases say how well rules fit the cases that
they were made for, and not how often they are right.

Seed 393488 was sealed until it was scored, too, recorded on two H100s: of its 29 recordings the
class was right in 19 of 21, the cause first in 18 of 19, and none of 4 controls had an alarm. Of 62
cases 14 found no room in 80 GB beside others that waited for their turn, one was too large, and 18
had a twin among these, which would have timed them: one of the four that were recorded all the same
is healthy, and has an alarm, as its loader was late. Since then `graph-breaks` counts launches,
too, steps that were timed under other conditions are told apart, and a short wait that nothing
names is the host's.

Seed 8, of two ranks, changed `bus-bandwidth`, which answers on machines whose `nvidia-smi topo`
tells nothing and comes before `communication-exposed`; and the rank whose loader is late without
the profiler alone became the straggler.

The tables of sealed cases are of nine seeds. 572037 of one GPU and 624109 of two ranks were drawn
and recorded after all of this, on two H100s, and each tool was asked once about their 51 recordings
before anybody looked at them. traceprobe had no word for `pipeline-bubble` then, where it says just
that: with the words of that day the class was right in 32 of 32, the cause first in 26 of 29, and
in three in 27. Of the other six cases of 57 two were too large, two had not ended in their time,
and two of Nsight Systems had a twin that was not timed. One of 10 controls has an alarm: the power
limit lowered the clock of one GPU, which is so, and lies in no program.

Then `forward-only` became a finding, workers that are idle for most of the time set no pace any
more, compiled kernels in 64 bits are noted for exports, and a program that takes a GPU to its power
limit by itself is told that nothing needs fixing. Controls have to show that they are such
since: each is timed with a host that is late by a tenth of a step, too, and is left out where half
of that makes its step longer.

Seed 377816 was drawn after that commit, with a control for each cause, recorded on an H100, and
asked about once as well: no control was left out, three cases of 87 did not end in their time or
had a twin that did not. What it missed changed when a lone wait for data counts as one that happens
once.

Seeds 661422 and 840577 are of 292 recordings of four H100s of one host, on which four programs had
their turns at a time, each on its own GPU: what is set up beside them takes cores, and some
controls were late for it. Of 661422 each tool was asked once before anybody looked: 78 of 81
classes, 78 of 83 causes first, 2 of 48 controls with an alarm. It made `garbage-collection` and
`gpu-shared` findings, `synchronization` answer for the lateness that waiting makes, and a pause
between values that are read the host's. Then 840577 was drawn, recorded and asked about once: 74 of
78 classes, 70 of 78 causes first and 76 in three, 3 of 49 controls with an alarm. Since then calls
that give memory back in most steps are no set-up, and nothing is saved of what other programs took
of a busy machine.

Seed 954546 was drawn then, with a control for each case of one GPU and for two of those of two
ranks, on four H100s again: 132 and 30 recordings. What is set up waits for all turns now, so that
no program has its turn beside another's compilers; four still have theirs at a time, or two pairs
of ranks. Of one GPU 49 of 52 classes were right, 48 of 52 causes first and 50 in three, and 3 of 68
controls had an alarm; of two ranks 16 of 16 classes, 10 of 16 causes, first or not, and 3 of 10
controls. So it was the first to ask how a rank differs that the others wait for:
`communication-skew` tells more kernels, more data, a larger stage and a slower GPU apart since.
Nothing is asked for any more that the fastest block of steps without the profiler did not have,
nor for more than four micro-batches a stage; and long steps of a host that runs ahead are known to
recur. To believe the fastest block instead of the mean was tried on all 820 recordings of then and
left: against the steps that were timed beside them it is further off. With all of this 4 of the 231
controls have an alarm, three of them `stages`, which copied a tenth of its step then.

Seed 546555 was drawn with these rules, on four H100s again: 99 recordings of one GPU and 33 of two
ranks, of which 49 of 53 classes were right, 49 causes first and 50 in three, and 1 of 61 controls
had an alarm. It showed that the recorder took a loader for one that has less ready than it has,
where batches were read before the first recorded step; that kernels of almost no work were told
only where the host is late for them (`small-kernels`); and that `unexplained-idle` asked for idle
time that the profiler had made. What is left of needless work in exports was seen before. Two
words changed as well: `unfused-kernels` stands for many tiny kernels, too, whose remedy it names,
as the like words of nsys-ai do; and the class of these is computing as much as overhead, for where
the host is ahead, they keep the GPU busy.

Then seed 509524 was drawn and recorded, 89 and 20 recordings, and each tool was asked once: 50 of
50 classes, 48 of 50 causes first and 49 in three, and none of 50 controls with an alarm. After that
what is predicted changed, and with it the order of what is told: stages of a pipeline wait for each
other also where they are equal, compiling ends where compiled code begins, hidden communication
slows kernels, and intervals of waiting end at all of it.

Seed 640261 was drawn with these rules, on four H100s again: 94 recordings of one GPU and 31 of two
ranks, and each tool was asked once: 54 of 54 classes, 51 causes first and 52 in three, and none of
56 controls with an alarm. After that what a finding leaves of a step got an interval of its own,
for a step varies where no more can be saved; iterations of several updates stay whole, and
gradients of gradients are backward work. Short kernels go with the reading of values that they
compute, and tiny kernels that are fused take their launches along: of steps with `synchronization`
first that were measured without it 20 of 28 were then within 5 % of what is predicted, where it had
been 18.

Seed 424596 was drawn with these rules, on four H100s: 109 recordings of one GPU and 21 of two
ranks, and each tool was asked once: 42 of 42 classes, 37 causes first and 41 in three, and one of
71 controls with an alarm. Of 37 steps that the first predictions are held against 35 were in the
interval of what is left, and 24, 30 and 33 within 5, 10 and 15 %. One of the misses showed that
ranks with different numbers of used iterations were played as they are: they are played for as many
each since, kernels of an optimizer stay where it reads values, and 247 of all 273 kept steps lie in
their interval. Of its 148 cases four found no room in 80 GB beside others, six were not over in
their turn, and eight had a twin that was not timed. A call before it ran too many at a time for
that memory, and left 15 recordings that nobody looked at.

After that masks were read from shapes, hidden communication was measured of six more models, ranks
that only wait for a loader in bursts had no long iterations any more, and kernels that wait for
room on the device wait less beside faster ones. Seed 473521 was drawn with these rules, on two
H200s: 71 recordings of one GPU and 19 of two ranks, and each tool was asked once: 43 of 44 classes,
42 causes first and 44 in three, and 5 of 42 controls with an alarm, four of them by a rule of that
day, which took kernels of cuDNN's RNNs for element-wise ones. Of 39 steps 34 were in the interval
of what is left, and 28, 31 and 36 within 5, 10 and 15 %. Those kernels are called fused since, the
micro-batches of 1F1B are counted, and max pooling gets faster in another layout. Of its 135 cases
41 had a twin that was not timed, two were no controls, and two were not over in their time.

After that memory that is set before a kernel that runs again went with it, the guards that fail
before a compilation with that; a step whose stalls were longer when it was timed is believed, and
kernels beside collectives that wait for a late rank get faster without it. Seed 569139 was drawn
with these rules, on two H200s: 69 recordings of one GPU and 16 of two ranks, and each tool was
asked once: 31 of 32 classes, 30 causes first and 31 in three, and one of 42 controls with an alarm.
Of 28 steps 24 were in the interval of what is left, and 20, 24 and 26 within 5, 10 and 15 %. The
worst waited for its loader in iterations that were not played; such a loader sets the pace since,
and 32 ms are left there where 56 were, and 35 measured. Of its 124 cases 36 had a twin that was not
timed, one was no control, and two were not over in their time. These recordings are not kept.
All seeds before it are open from now on.
Steps that are predicted are held against the blocks that were timed without the cause since then;
before, against the whole step less the difference. Scores of earlier seeds are what was said then.

How long nsys-ai takes for the six before it is left out: it waited for a network that machines had
not. `nsys analyze` was asked about 840577 alone, where it is installed. TraceML ran the programs of
43 recordings of 954546 on the GPU: those that are compiled end in it with an error of PyTorch
2.11's Dynamo (`already tracked for mutation`), 35 of 43, which is no answer.

`score` asks each tool once about each recording and goes on where it was ended; answers lie in
`DIR/answers.jsonl`. Environments of the other tools are made as
[performance.md](performance.md#environments-of-the-other-tools) says; TraceML's, where a `torch`
is:

```console
python -m venv --system-site-packages ~/peers/traceml
~/peers/traceml/bin/pip install --no-deps traceml-ai==0.5.0
~/peers/traceml/bin/pip install rich psutil nvidia-ml-py msgspec pyyaml
```

How each tool is asked:

- **traceprobe**: `traceprobe analyze FILES -o report.json`, and that file alone: the verdict, and
  the findings that warn, in their order.
- **HTA**: `get_temporal_breakdown`, `get_gpu_kernel_breakdown`, `get_idle_time_breakdown`, and of
  several ranks `get_potential_stragglers`, with their defaults. It states shares and has no
  verdict: the largest share but compute that has 20 % of the time is taken for one.
- **nsys-ai**: the patterns of `nsys-ai skill run root_cause_matcher`, then the findings of
  `nsys-ai diagnose`; its verdict is the class of the critical path.
- **TraceML**: `traceml run` of the same program, the step wrapped as its documentation shows; its
  verdict is the primary diagnosis, and what it says are the issues of all sections.
- **nsys analyze**: the rules that name causes, with their defaults; what lists rows is said.
"""
ABOUT = """What a tool says has a word, an id or a title, and a text: what it explains and advises.
Where the second column has something, a regular expression, the word stands for these causes only
if its text has that; all that are found count, and where none is, the row without one. A word that
is in no table names no cause.
"""
LIMITS = """## Limits

- The causes are those that we thought of, each put into programs of a few hundred lines, on one
  machine. A run in production has several at once, most of them small.
- Programs, causes and the table of words are made by the authors of one of the tools. The table
  gives others the benefit of the doubt; corrections are welcome.
- A healthy program is one with which we know nothing left to do.
- Recordings are cut to a few steps: what happens once in a hundred is not in them.
- traceprobe records what it reads with its own recorder, which notes more than `torch.profiler`
  does by itself: the loader's work, lines, the step without a profiler. Others get the same
  files, and do not read that.
"""


def page(found: Mapping[str, Any]) -> str:
    """The scores as Markdown."""
    cases = [case for case in found["cases"] if case["failed"] is None]
    failed = [case for case in found["cases"] if case["failed"] is not None]
    tools = sorted({t for c in cases for t in c["answers"]}, key=lambda tool: (tool != OURS, tool))
    parts = [PAGE, _short(cases, tools), _machines(found, cases, failed)]
    for split in SPLITS:
        own = [case for case in cases if case["split"] == split]
        if own:
            parts += [f"## {split.capitalize()} cases\n", *_split(own, tools)]
            if split == "sealed":
                parts += ["traceprobe, by seed:\n", tables.seeds_table(own) + "\n"]
                newest = _newest(own)
                if newest:
                    asked = [t for t in tools if any(t in case["answers"] for case in newest)]
                    table = tables.tools_table(newest, asked)
                    parts += [f"Every tool, of seed {NEWEST} alone:\n", table + "\n"]
                    parts += [f"Steps that were predicted, of seed {NEWEST} alone:\n"]
                    parts += [tables.savings_table(newest) + "\n"]
    parts += [_misses(cases), _words(cases), RUN, LIMITS]
    return "\n".join(parts)


def _short(cases: Sequence[Case], tools: Sequence[str]) -> str:
    lines = ["## In short\n"]
    newest = _newest(cases)
    if newest:
        lines += ["Of the seed that was drawn after the last rule was written:\n"]
        lines += [*_each_tool(f"seed {NEWEST}", newest, tools), "", "Of all:\n"]
    for split in SPLITS:
        lines += _each_tool(split, [case for case in cases if case["split"] == split], tools)
    return "\n".join([*lines, ""])


def _newest(cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if case["seed"] == NEWEST]


def _each_tool(which: str, cases: Sequence[Case], tools: Sequence[str]) -> list[str]:
    """A line for each tool that was asked about some of the cases."""
    lines = []
    for tool in tools:
        each = tables.marks(tables.slow(cases), tool)
        alarmed = tables.quiet(tables.marks(tables.healthy(cases), tool))
        if each:
            lines.append(
                f"- {which}, {tool}: class {tables.of(each, 'cls')}; cause first "
                f"{tables.within(each, 'place', 1)}, in three {tables.within(each, 'place', 3)}; "
                f"healthy runs with an alarm {alarmed}."
            )
    return lines


_NO_GPU = (
    "- No recording of a GPU is among them yet, and on cores that other programs share the times "
    "of both forms of a program wander: these numbers try the test, and say little of tools."
)


def _machines(found: Mapping[str, Any], cases: Sequence[Case], failed: Sequence[Case]) -> str:
    lines = ["## What was run\n"]
    for machine in found["machines"]:
        said = [f"{key}: {_flat(value)}" for key, value in sorted(machine.items()) if value]
        lines.append(f"- Recorded on: {'; '.join(said)}.")
    lines.append(f"- Scored on: {found['scored_on']}. Tools: {', '.join(_versions(found))}.")
    causes = {cause["id"] for case in cases for cause in case["causes"]}
    lines.append(
        f"- {len(cases)} recordings of {len({case['program'] for case in cases})} programs: "
        f"{len(tables.slow(cases))} with causes that are felt, {len(tables.unfelt(cases))} with "
        f"causes that are not, {len(tables.healthy(cases))} healthy; {len(causes)} causes; "
        f"{sum(len(case['causes']) > 1 for case in cases)} have two."
        + (f" {len(failed)} more were not recorded." if failed else "")
    )
    if not any(machine.get("gpus") for machine in found["machines"]):
        lines.append(_NO_GPU)
    return "\n".join([*lines, ""])


def _flat(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value[key]}" for key in sorted(value))
    if isinstance(value, list):
        return ", ".join(dict.fromkeys(map(str, value)))
    return str(value)


def _versions(found: Mapping[str, Any]) -> list[str]:
    return [told for _, told in sorted(found["versions"].items())]


def _split(cases: Sequence[Case], tools: Sequence[str]) -> list[str]:
    """All tables of the open cases, or of the sealed ones."""
    many = {case["id"] for case in cases if len(case["causes"]) > 1}
    pairs = [case for case in tables.slow(cases) if case["id"] in many]
    told = [f"- {tool}: {tables.of(tables.marks(pairs, tool), 'all_in_three')}" for tool in tools]
    alarmed = tables.quiet(tables.marks(tables.unfelt(cases), OURS))
    silence = tables.silence_table(cases, tools)
    return [
        tables.tools_table(cases, tools) + "\n",
        tables.verdicts_table(cases, tools) + "\n",
        "The class right / the cause first / in three:\n",
        *(
            tables.groups_table(title, cases, tools, key) + "\n"
            for title, key in (
                ("class", lambda case: [case["class"]]),
                ("backend", lambda case: [case["backend"]]),
                ("cause", lambda case: [f"`{cause}`" for cause in case["felt_causes"]]),
            )
        ),
        *(["Both of two causes in the first three:\n", *told, ""] if pairs else []),
        f"Of {len(tables.unfelt(cases))} runs whose cause is not felt, traceprobe asks for a look "
        f"at something: {alarmed}.\n",
        "How often the class is right, by the confidence that is stated:\n",
        tables.confidence_table(cases, [tool for tool in tools if tool in (OURS, "nsys-ai")])
        + "\n",
        "The step once the cause is mended, predicted by traceprobe against measured:\n",
        tables.savings_table(cases) + "\n",
        tables.advised_text(cases) + "\n",
        "What an answer takes:\n",
        tables.costs_table(cases, tools) + "\n",
        *(["Where there is no answer at all:\n", silence + "\n"] if silence else []),
    ]


def _misses(cases: Iterable[Case]) -> str:
    """Each case that traceprobe gets wrong, with the reason where somebody wrote it."""
    reasons = json.loads(EXPLANATIONS.read_text(encoding="utf-8"))
    lines = ["## What traceprobe gets wrong\n"]
    for case in cases:
        wrong = _wrong(case)
        if wrong:
            answer = case["answers"][OURS]
            causes = " and ".join(
                f"{cause['id']}, {cause['ms']:.1f} of {case['slow_ms']:.1f} ms"
                for cause in case["causes"]
            )
            said = ", ".join(answer["said"][:3]) or "nothing"
            lines.append(
                f"- `{case['id']}` ({case['split']}; {causes or 'healthy'}): {wrong}. It says "
                f"{answer['verdict'] or answer['failed']}: {said}. "
                + reasons.get(case["id"], "*Not explained yet.*")
            )
    return "\n".join([*(lines if len(lines) > 1 else [*lines, "Nothing."]), ""])


def _wrong(case: Case) -> str:
    """What is wrong in an answer of traceprobe, in words; empty where nothing is."""
    answer = case["answers"].get(OURS)
    if answer is None or (case["causes"] and not case["felt"]):
        return ""
    if answer["failed"] is not None:
        return "no answer"
    marks = answer["marks"]
    found = []
    if case["causes"]:
        found += ["the class"] if marks["cls"] is not True else []
        found += ["not in the first three"] if not 0 < (marks["place"] or 0) <= 3 else []
    elif marks["alarms"]:
        found.append(f"a false alarm ({', '.join(answer['alarms'])})")
    return ", ".join(found)


def _words(cases: Iterable[Case]) -> str:
    """The published table."""
    causes = {cause["id"] for case in cases for cause in case["causes"]} or set(BY_ID)
    parts = ["## Words\n", ABOUT, "What the verdicts of each tool stand for:\n"]
    for tool, bounds in BOUNDS.items():
        said = [f"`{word}` {' or '.join(classes)}" for word, classes in bounds.items()]
        parts.append(f"- **{tool}**: {', '.join(said)}.")
    for tool in WORDS:
        without = ", ".join(tables.unclaimed(tool, causes)) or "none"
        parts += [f"\n### Words of {tool}\n", tables.words_table(tool)]
        parts.append(f"\nCauses of this page without a word: {without}.")
    return "\n".join([*parts, ""])
