"""No string of a record becomes Markdown: the tree of GitHub's renderer has the tags we wrote."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.builders import kineto
from tests.builders.loop import Loop
from tests.cli_runner import MS
from tests.every_record import RECORD_NAMES, every_record, refilled
from tests.gfm_tree import Tree
from traceprobe import analyze, load
from traceprobe.compare.compare import compare
from traceprobe.compare.run import observe
from traceprobe.formatting import clean
from traceprobe.render.gfm import in_html, literal, prose
from traceprobe.render.markdown import MAX_CHARACTERS, MAX_LINES

TAGS = {
    *("h3", "h4", "p", "ol", "ul", "li", "strong", "code", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
"""Those that we write."""
NASTY = [
    "`|<img src=http://a.example/b.png>|` %",
    "`|@someone [free](http://a.example)|` %",
    "`|` | `|` %",
    "`` %",
    "`a``b` %",
    "``` %",
    "%`",
    "% \\",
    "\\| % \\\\|",
    "%\\`|@x|`",
    "| % | | |",
    "|---|",
    ":--|",
    "![%](http://a.example/b.png)",
    "[%](javascript:alert(1))",
    "[%][a]",
    "[a]:http://a.example %",
    "[[%]](x)",
    "<http://a.example> %",
    "http://a.example/%",
    "ftp://a.example/%",
    "www.a.example %",
    "WwW.a.example %",
    "someone@a.example %",
    "mailto:someone@a.example %",
    "@someone %",
    "@org/team %",
    "#1 %",
    "a/b#1 %",
    "a/b@0123456789abcdef0123456789abcdef01234567 %",
    "GH-1 %",
    "gh-1 %",
    "GHSA-abcd-efgh-ijkl %",
    "https://github.com/a/b/issues/1 %",
    "<b onmouseover=x>%</b>",
    "<script>%</script>",
    "</summary></details> %",
    "<!-- %",
    "--> %",
    "<details> %",
    "[^1] %",
    "[^1]:%",
    "$x$ %",
    "$$ %",
    "$`%`$",
    "\\(%\\)",
    "a:smile:b %",
    "::+1::%::",
    "~~%~~",
    "~~~ %",
    "**%**",
    "*%*",
    "__%__ _a_",
    "***",
    "---",
    "===",
    "- %",
    "+ %",
    "* %",
    "1. %",
    "1) %",
    "123456789. %",
    "1.",
    "-",
    "# %",
    "###### %",
    "> %",
    "> [!NOTE] %",
    "- [ ] %",
    "- [x] %",
    "[x] %",
    "    %",
    "\t%",
    "%  \n%",
    "%\n\n# b",
    "%\n```math\nx\n```",
    "%\n|a|b|\n|-|-|\n|1|2|",
    "&lt;b&gt; %",
    "&#96;&#124; %",
    "&#x40;someone %",
    "javascript:alert(1) %",
    "\u202e\u2066%\u200b@a",
    "\x1b]8;;http://a.example\x07%\x1b]8;;\x07",
]


@cache
def harmless(kind, pattern="word%"):
    """The tree of the same record with a word for every string."""
    return Tree(refilled(every_record()[kind], numbered(pattern)).to_markdown())


def numbered(pattern):
    """Strings of a pattern, told apart by their numbers where it has a place for them."""
    return lambda number, _: pattern.replace("%", str(number))


@pytest.mark.slow
@pytest.mark.parametrize("kind", RECORD_NAMES)
def test_names_leave_the_tree_as_it_is(kind):
    wrong = {}
    for nasty in NASTY:
        text = refilled(every_record()[kind], numbered(nasty)).to_markdown()
        assert len(text.splitlines()) <= MAX_LINES
        assert len(text) <= MAX_CHARACTERS
        tree = Tree(text)
        live = [*tree.live()]
        wanted = harmless(kind, "word%" if "%" in nasty else "word")
        if tree.skeleton() != wanted.skeleton() or live:
            wrong[nasty] = live
    assert wrong == {}
    assert {tag.strip("/") for tag in harmless(kind).tags} <= TAGS


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize(
    "line",
    ["{}", "- {}", "### {}", "| {} | a |\n|:--|:--|\n| b | {} |", "a\n{}", "**{}**"],
    ids=["paragraph", "item", "heading", "table", "second line", "bold"],
)
def test_a_name_is_shown_as_it_is(line, nasty):
    """The text of the tree is the name, but for what breaks it up."""
    name = nasty.replace("%", "name")
    tree, plain = Tree(line.format(*[literal(name)] * 2)), Tree(line.format("word", "word"))
    assert tree.tags == plain.tags
    shown = "".join(tree.text).replace("\u200b", "").replace("\uff04", "$")
    assert clean(name).replace("\u200b", "") in shown
    assert [*tree.live()] == []


@pytest.mark.parametrize("nasty", NASTY)
def test_a_name_inside_html_is_text(nasty):
    tree = Tree(f"<details><summary>{in_html(nasty)}</summary>\n\ntext\n\n</details>")
    assert tree.tags == ["details", "summary", "/summary", "p", "/p", "/details"]
    assert [*tree.live()] == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("set `num_workers` to 4", ["num_workers"]),
        ("`a` and `b`", ["a", "b"]),
        ("`@someone #1 <b> www.a.example`", ["@someone #1 <b> www.a.example"]),
        ("`a|b`", []),
        ("`a | b` and `c`", ["c"]),
        ("`a``b`", []),
        ("` ` a", []),
        ("a ` b", []),
    ],
)
def test_code_of_a_sentence_stays_code_where_that_is_safe(text, code):
    for line in ("{}", "| {} | a |\n|:--|:--|"):
        assert Tree(line.format(prose(text))).code == code


def test_kernels_of_a_stranger_are_text_where_runs_are_compared(tmp_path):
    """From the traces on, in the tables of kernels too."""
    image, mention = "`|<img src=http://a.example/b.png>|`", "`|@someone [x](http://a.example)|`"
    for name, forward in (("a.json", 4), ("b.json", 16)):
        loop = Loop(steps=8, forward_ns=forward * MS, backward_ns=2 * forward * MS)
        trace = json.loads(kineto.dumps(loop.scenario()))
        for event in trace["traceEvents"]:
            if event.get("cat") == "kernel":
                event["name"] = image if event["dur"] > 300 * forward else mention
        (tmp_path / name).write_text(json.dumps(trace))
    runs = [observe(analyze(load(tmp_path / name)), name) for name in ("a.json", "b.json")]
    tree = Tree(compare(*runs).to_markdown())
    shown = "".join(tree.text)
    assert "<img src=http:" in shown
    assert "someone [x]" in shown  # what follows the bracket is no part of a short name
    assert {tag.strip("/") for tag in tree.tags} <= TAGS
    assert [*tree.live()] == []


def test_the_longest_names_leave_room():
    for kind, record in every_record().items():
        text = refilled(record, lambda number, _: "&@<" * 4000).to_markdown()
        assert len(text) <= MAX_CHARACTERS, kind
        assert len(text.splitlines()) <= MAX_LINES
