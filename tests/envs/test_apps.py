"""Apps: its tools, what difficulty does, and the ways of cheating that it has to withstand."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest

from headway.envs.box import Box
from headway.envs.contract import Run, certify
from headway.envs.domains.apps import APPS, KNOBS
from headway.envs.domains.apps.tools import HOURS
from headway.envs.render import Instance, build
from headway.envs.task import TaskKey
from headway.envs.world import Action


def task(template: str, difficulty: int = 3, seed: int = 0, **parts: Any) -> Instance:
    """A certified task of the test split."""
    key = TaskKey("Apps", 0, template, difficulty, 2, "test", seed)
    return certify(APPS, replace(key, **parts))[0]


def played(instance: Instance, **instead: Any) -> Run:
    """The oracle with the arguments of every call of a tool changed by a function."""
    actions = [
        replace(a, args={**a.args, **instead[a.tool](a.args)}) if a.tool in instead else a
        for a in instance.solution()
    ]
    return Run(instance).play(actions)


@pytest.fixture(scope="module")
def box() -> Box:
    """A box to try tools on; tests fork it."""
    return task("bills").open()


@pytest.mark.parametrize(
    ("tool", "args", "says"),
    [
        ("mail_search", {"query": "  "}, "1 to 20 different words, got 0"),
        ("mail_read", {"id": "m999"}, "no mail record 'm999'"),
        ("mail_send", {"to": "nobody", "subject": "", "body": ""}, "to must be an address"),
        ("mail_send", {"to": "a@b.example, c@d.example", "subject": "", "body": ""}, "address"),
        ("cal_list", {"date": "05/01/2031"}, "date must be one date like 2031-05-01"),
        ("cal_list", {"date": "2031-05-01 2031-05-02"}, "one date"),
        ("cal_create", {"title": "t", "date": "2031-05-01", "start": "09:30", "who": []}, "full"),
        ("cal_create", {"title": "t", "date": "2031-05-01", "start": "18:00", "who": []}, "full"),
        ("contacts_find", {"name": "a"}, "at least two letters"),
        ("note_read", {"title": "no such"}, "note_list shows the titles"),
        ("pay_send", {"payee": "x", "amount": 0, "memo": ""}, "amount must be above 0"),
        ("pay_send", {"payee": "x", "amount": -3, "memo": ""}, "amount must be above 0"),
        ("pay_send", {"payee": "x", "amount": 1.005, "memo": ""}, "two decimals"),
        ("pay_send", {"payee": "x", "amount": 1e300, "memo": ""}, "below 1000000"),
        ("pay_refund", {"id": "zz"}, "no payments record"),
        ("file_read", {"path": "../../etc/passwd"}, "no file"),
        ("file_write", {"path": "../x", "text": ""}, "path must be"),
        ("file_write", {"path": "/etc/x", "text": ""}, "path must be"),
        ("file_write", {"path": "a" * 101, "text": ""}, "path must be"),
    ],
)
def test_mistakes_are_answered(box: Box, tool: str, args: dict[str, Any], says: str) -> None:
    """The message names what is wrong, and nothing changes."""
    fork = box.fork()
    reply = fork.call(tool, args)
    assert reply.error and says in reply.text, reply.text
    assert len(reply.text) < 400
    assert fork.canonical() == box.canonical() and not reply.seen


@pytest.mark.parametrize("date", ["2031-05-01", "1 May 2031", "May 1st, 2031", "2031/05/01"])
def test_tools_and_checks_read_one_grammar(box: Box, date: str) -> None:
    """A date is stored in canonical form, however it was written."""
    fork = box.fork()
    args = {"title": "t", "date": date, "start": "9 am", "who": ["Ann@Corp.Example"]}
    id = fork.call("cal_create", args).value["id"]
    event = fork.table("events")[id]
    assert (event["date"], event["start"]) == ("2031-05-01", "09:00")
    assert event["who"] == ["ann@corp.example"]


def test_search_needs_every_word_and_is_bounded(box: Box) -> None:
    """Hits are evidence of nothing; more than twenty are counted, not shown."""
    fork = box.fork()
    for n in range(30):
        fork.call("mail_send", {"to": "a@b.example", "subject": f"flood {n}", "body": "word"})
    reply = fork.call("mail_search", {"query": "FLOOD word"})
    assert len(reply.value) == 21 and reply.value[-1].startswith("and 10 more")
    assert not reply.seen and len(reply.listed) == 20
    assert fork.call("mail_search", {"query": "flood nowhere"}).value == []


def test_look_ups_that_single_out_nothing_are_no_evidence(box: Box) -> None:
    """Only a look-up with at most three hits shows that a contact was found."""
    fork = box.fork()
    name = next(iter(fork.table("contacts").values()))["name"]
    assert len(fork.call("contacts_find", {"name": name}).seen) == 1
    for n in range(4):
        fork.put("contacts", f"x{n}", {"name": f"Zz{n}", "email": "z@z.example", "team": "x"})
        reply = fork.call("contacts_find", {"name": "zz"})
        assert len(reply.value) == n + 1
        assert len(reply.seen) == (n + 1 if n < 3 else 0)


def test_difficulty_grows() -> None:
    """Oracle calls and records rise from level to level, in the mean and on every template."""
    for template in APPS.template_names("test"):
        calls, records = [], []
        for difficulty in KNOBS:
            worlds = [
                build(APPS, TaskKey("Apps", 0, template, difficulty, 2, "test", seed))
                for seed in range(8)
            ]
            calls.append(statistics.mean(len(w.solution()) for w in worlds))
            records.append(statistics.mean(sum(map(len, w.task.tables.values())) for w in worlds))
        assert calls == sorted(set(calls)), (template, calls)
        assert records == sorted(set(records)), (template, records)


def test_traps_are_laid_where_the_knobs_say() -> None:
    """From difficulty 3 on every template has a naive solution that falls into one."""
    for template in APPS.template_names("test"):
        easy = build(APPS, TaskKey("Apps", 0, template, 2, 2, "test", 1))
        hard = build(APPS, TaskKey("Apps", 0, template, 4, 2, "test", 1))
        assert not [n for n in easy.world.naive if n.trap != "wrong end of the day"]
        assert hard.world.naive


@pytest.mark.parametrize("template", ["move", "invite"])
def test_a_mail_that_says_every_hour_is_refused(template: str) -> None:
    """In the prototype it passed in 80 of 80 tasks."""
    every = " ".join(HOURS)
    for seed in range(5):
        instance = task(template, seed=seed)
        assert played(instance).grade().success
        run = played(instance, mail_send=lambda args: {"body": f"{args['body']} or {every}"})
        assert not run.grade().success


@pytest.mark.parametrize("difficulty", [1, 2])
def test_guessing_every_hour_one_by_one_is_refused(difficulty: int) -> None:
    """A blind script makes an event and a mail for each hour; it once succeeded 20 times in 20."""
    for seed in range(5):
        instance = task("invite", difficulty, seed)
        event = next(a for a in instance.solution() if a.tool == "cal_create")
        mails = [a for a in instance.solution() if a.tool == "mail_send"]
        blind = [replace(event, args={**event.args, "start": hour}) for hour in HOURS]
        blind += [
            replace(m, args={**m.args, "body": f"{event.args['date']} {hour}"})
            for m in mails
            for hour in HOURS
        ]
        verdict = Run(instance).play(blind).grade()
        assert not verdict.success and verdict.progress < 0.05


@pytest.mark.parametrize("template", ["move", "split", "bills", "triage"])
def test_a_wrong_row_beside_the_right_one_is_damage(template: str) -> None:
    """A second mail with another hour or number, a second note with almost the same title."""
    instance = task(template, difficulty=2)
    for action in instance.solution():
        if action.tool == "mail_send":
            extra = replace(action, args={**action.args, "body": "On 2031-12-24 at 08:00: 7"})
        elif action.tool == "note_write":
            extra = replace(action, args={**action.args, "title": f"{action.args['title']} "})
        else:
            continue
        verdict = Run(instance).play([*instance.solution()[:-1], extra]).grade()
        assert not verdict.success, extra


def test_traps_lie_at_no_fixed_place() -> None:
    """What is paid, corrected, copied or moved is not known from where it stands."""
    places: dict[str, set[object]] = {}
    for seed in range(30):
        tables = {}
        for template in ("bills", "triage", "receipts", "invite"):
            world = build(APPS, TaskKey("Apps", 0, template, 4, 2, "test", seed)).world
            tables[template] = (world.tables, [s.id for s in world.steps])
        steps = tables["bills"][1]
        reads = [s.removeprefix("read.") for s in steps if s.startswith("read.")]
        unpaid = next(n for n, name in enumerate(reads) if f"pay.{name}" not in steps)
        places.setdefault("paid before", set()).add(unpaid)
        tickets = [int(s.removeprefix("label.m")) for s in tables["triage"][1] if "label" in s]
        places.setdefault("tickets side by side", set()).add(
            max(tickets) - min(tickets) == len(tickets) - 1
        )
        read = [s for s in tables["receipts"][1] if s.startswith("read.")]
        places.setdefault("first receipts", set()).add("read.r1" in read)
        for contact in tables["invite"][0]["contacts"].values():
            plain = contact["name"].lower().replace(" ", ".")
            assert not contact["email"].startswith(f"{plain}@")
    assert len(places["paid before"]) == 4
    assert places["tickets side by side"] >= {False} and places["first receipts"] == {True, False}


def test_the_mails_that_can_be_sent_are_bounded() -> None:
    box = task("bills").open()
    mail = {"to": "a@b.example", "subject": "s", "body": "b"}
    assert not any(box.call("mail_send", mail).error for _ in range(100))
    assert "no more than 100 mails" in box.call("mail_send", mail).text


def test_a_search_is_bounded() -> None:
    """Few words, short texts: a full mailbox cannot stall a worker."""
    box = task("bills").open()
    many = box.call("mail_search", {"query": " ".join(f"w{n}" for n in range(30))})
    assert many.error and "1 to 20 different words" in many.text
    for tool, args in (
        ("mail_send", {"to": "a@b.example", "subject": "s", "body": "x" * 2001}),
        ("note_write", {"title": "t", "text": "x" * 2001}),
        ("file_write", {"path": "t", "text": "x" * 2001}),
    ):
        assert "at most 2000 characters" in box.call(tool, args).text


def test_a_payment_made_twice_is_damage() -> None:
    """Also when the second one differs only in its memo."""
    instance = task("bills", difficulty=1)
    pay = next(a for a in instance.solution() if a.tool == "pay_send")
    again = replace(pay, args={**pay.args, "memo": "again"})
    run = Run(instance).play([*instance.solution()[:-1], again])
    verdict = run.grade()
    assert not verdict.success and verdict.progress < 1


def test_paying_back_what_was_paid_is_no_payment() -> None:
    """A slip taken back is no damage; the task's own payment taken back is not done."""
    instance = task("bills", difficulty=1)
    run = Run(instance)
    for action in instance.solution()[:-1]:
        value = run.do(action).value
        if action.tool == "pay_send":
            run.do(Action("pay_refund", {"id": value["id"]}))
    verdict = run.grade()
    assert not verdict.success and not verdict.violations


def test_old_payments_cannot_be_voided() -> None:
    """What stood there at reset has to be back exactly as it was."""
    instance = task("bills", difficulty=1)
    old = next(k for k, p in instance.task.tables["payments"].items() if p["memo"] == "old")
    run = Run(instance).play([*instance.solution()[:-1], Action("pay_refund", {"id": old})])
    assert run.grade().violations == (f"edited payments/{old}",)


def test_labelling_everything_is_refused() -> None:
    """Every ticket with every label, and every mail with the right one."""
    instance = task("triage")
    labels = {a.args["label"] for a in instance.solution() if a.tool == "mail_label"}
    all_labels = [instance.world.facts[code] for code in ("p1", "p2", "p3")]
    assert labels <= set(all_labels)
    tickets = [a.args["id"] for a in instance.solution() if a.tool == "mail_label"]
    for ids in (tickets, list(instance.task.tables["mail"])):
        extra = [
            Action("mail_label", {"id": id, "label": label}) for id in ids for label in all_labels
        ]
        verdict = Run(instance).play([*extra, *instance.solution()[:-1]]).grade()
        assert not verdict.success and verdict.progress < 0.3
        assert not any(ok for name, ok in verdict.ok.items() if name.startswith("label."))


def test_reading_everything_earns_at_most_the_evidence_cap() -> None:
    """15 %, on every template, and a look earns something."""
    for template in APPS.template_names("test"):
        instance = task(template)
        run = Run(instance)
        verdict = run.play(instance.look(run.box)).grade()
        assert 0 < verdict.progress <= 0.15 + 1e-9


def test_damage_past_the_third_still_costs() -> None:
    """Each further violation lowers progress, however many there are."""
    instance = task("bills", difficulty=1)
    run = Run(instance).play(instance.solution()[:-1])
    last = run.grade().progress
    for n in range(6):
        run.do(Action("note_write", {"title": f"stray {n}", "text": "x"}))
        assert run.grade().progress < last
        last = run.grade().progress


def test_a_report_needs_its_pairs() -> None:
    """The right dates and amounts in the wrong lines are no report."""
    instance = task("receipts", difficulty=2)

    def crossed(args: dict[str, Any]) -> dict[str, Any]:
        head, first, second, *rest = args["text"].splitlines()
        a, b = first.split(","), second.split(",")
        return {
            "text": "\n".join([head, ",".join([*a[:2], b[2]]), ",".join([*b[:2], a[2]]), *rest])
        }

    assert played(instance).grade().success
    verdict = played(instance, file_write=crossed).grade()
    assert not verdict.success and not verdict.ok["report"]


def test_answers_are_single() -> None:
    """The right number among others, or as part of another, is refused."""
    instance = task("receipts", difficulty=2)
    gold = instance.solution()[-1].args["answer"]
    for answer, right in [
        (gold, True),
        (f"The total is {gold} EUR.", True),
        (f"{gold} or 1.00", False),
        (f"1{gold}", False),
        ("", False),
        ("all of it", False),
    ]:
        run = Run(instance).play(instance.solution()[:-1])
        run.do(Action("submit", {"answer": answer}))
        assert run.grade().success is right, answer
