"""Six families of office work. Each function drafts one world: state, workflow, checks, sayings.

What is said stands here by its id only; the sentences are those of ``sayings.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.envs.domain import Template
from headway.envs.domains.apps.tools import HOURS
from headway.envs.world import Action, Draft
from headway.verifiers import Allow, Check

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August")
CODES = ("P1", "P2", "P3")
HOSTS = ("corp.example", "office.example", "mail.example", "lab.example")


def people(draft: Draft, count: int) -> list[str]:
    """Adds ``count`` contacts with names that share no word and returns their ids."""
    first = draft.rng.sample(draft.words["first"], count)
    names = [f"{name} {draft.rng.choice(draft.words['last'])}" for name in first]
    return [
        draft.add(
            "contacts",
            "c",
            name=name,
            email=address(draft, name),
            team=draft.rng.choice(draft.words["team"]),
        )
        for name in names
    ]


def address(draft: Draft, name: str) -> str:
    """An address of somebody, which the name does not tell."""
    first, last = name.lower().split()
    forms = (f"{first}.{last}", f"{first[0]}{last}", f"{last}.{first}", first)
    rng = draft.rng
    return draft.unique(lambda: f"{rng.choice(forms)}{rng.randint(10, 99)}@{rng.choice(HOSTS)}")


def money(draft: Draft, low: int = 20, high: int = 300) -> str:
    """An amount that occurs nowhere else in the world."""
    return draft.unique(lambda: f"{draft.rng.randint(100 * low, 100 * high) / 100:.2f}")


def day(draft: Draft, month: int, first: int = 1, last: int = 28) -> str:
    """A date of 2031 that occurs nowhere else in the world."""
    return draft.unique(lambda: f"2031-{month:02d}-{draft.rng.randint(first, last):02d}")


def clutter(draft: Draft) -> None:
    """Records that have nothing to do with the task."""
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    ids = people(draft, 4 + knobs.distractors)
    senders = [draft.tables["contacts"][id]["name"] for id in ids]
    for _ in range(2 + 2 * knobs.distractors):
        mail(draft, rng.choice(senders), "Lunch?", f"Are you free on day {rng.randint(1, 28)}?")
    for _ in range(2 + knobs.distractors):
        event(draft, f"{rng.choice(words['topic'])} sync", day(draft, 4), rng.choice(HOURS))
    note(draft, "scratch", "nothing here")
    draft.add("payments", "p", **payment(rng.choice(words["vendor"]), money(draft), "old"))
    draft.put("files", "readme.txt", text="Put receipts into receipts and reports into reports.")


def mail(draft: Draft, sender: str, subject: str, body: str, date: str = "2031-01-15") -> str:
    """Adds a received mail and returns its id."""
    row = {"from": sender, "to": "me", "subject": subject, "body": body}
    return draft.add("mail", "m", **row, date=date, labels=[])


def event(draft: Draft, title: str, date: str, start: str, who: Sequence[str] = ()) -> str:
    """Adds an event and returns its id."""
    return draft.add("events", "e", title=title, date=date, start=start, who=list(who), status="on")


def note(draft: Draft, title: str, text: str) -> str:
    """Adds a note and returns its record name."""
    return f"notes/{draft.add('notes', 'n', title=title, text=text)}"


def payment(payee: str, amount: str, memo: str) -> dict[str, Any]:
    """A row of payments."""
    return {"payee": payee, "amount": amount, "memo": memo, "status": "sent"}


def number(draft: Draft) -> str:
    """A number of four digits that occurs nowhere else in the world."""
    return draft.unique(lambda: str(draft.rng.randint(1000, 9999)))


def slug(name: str) -> str:
    """A name as a part of an id."""
    return name.lower().replace(" ", "_")


def evidence(id: str, *records: str) -> Check:
    """The agent has seen these records."""
    return Check(id, "seen", {"records": list(records)}, 0.25, evidence=True)


def row(id: str, table: str, key: str | None = None, /, weight: float = 1.0, **where: Any) -> Check:
    """Exactly one row (of that key) meets the conditions."""
    only = {} if key is None else {"key": key}
    return Check(id, "rows", {"table": table, **only, "where": where}, weight)


def mailed(id: str, to: str, body: Any) -> Check:
    """Exactly one mail from the agent went to ``to`` with that body, and no second one."""
    where = {"from": "me", "to": {"address": to}, "body": body}
    return Check(id, "rows", {"table": "mail", "where": where})


def noted(id: str, title: str, number: str) -> Check:
    """One note has that title, and the number is all that it says."""
    return row(id, "notes", title={"text": title}, text={"number": number})


def find(draft: Draft, id: str) -> Action:
    """Looks up the contact with that id by its name."""
    name = draft.tables["contacts"][id]["name"]
    return Action("contacts_find", {"name": name}, finds=(f"contacts/{id}",))


def send(to: str, subject: str, body: str, *sources: str) -> Action:
    """Mails a body that is worked out from ``sources``; any subject will do."""
    args = {"to": to, "subject": subject, "body": body}
    return Action("mail_send", args, {"subject": (), "body": sources})


def jot(title: str, text: str, *sources: str) -> Action:
    """Writes a note whose text is worked out from ``sources``."""
    return Action("note_write", {"title": title, "text": text}, {"text": sources})


def bills(draft: Draft) -> None:
    """Pay the month's invoices, label them, note the total.

    Traps: one invoice was paid before; an old bill was paid twice and has to be refunded.
    """
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    clutter(draft)
    month, other = rng.sample(MONTHS, 2)
    label = rng.choice(words["label"])
    vendors = rng.sample(words["vendor"], knobs.size)
    paid_before = rng.choice(vendors) if knobs.traps >= 1 else None
    invoices = _invoices(draft, vendors, month, other)
    draft.facts |= {"month": month, "vendors": ", ".join(vendors), "label": label}
    title = draft.facts["title"] = f"{month} bills"
    total, paid, labels = 0, [], []
    for vendor in vendors:
        id, amount = invoices[vendor]
        name = slug(vendor)
        draft.referent(
            f"the {month} invoice of {vendor}",
            "mail",
            **{"from": vendor, "subject": f"Invoice for {month}"},
        )
        places = [f"mail/{id}"]
        if vendor == paid_before:
            old = draft.add("payments", "p", **payment(vendor, amount, f"{month} bill"))
            places.append(f"payments/{old}")
        draft.secret(f"amount of {vendor}", amount, *places, bits=14)
        read = draft.step(
            f"read.{name}",
            [
                Action("mail_search", {"query": f"{vendor} {month}"}, finds=(f"mail/{id}",)),
                Action("mail_read", {"id": id}),
                Action("pay_history", {"payee": vendor}),
            ],
            evidence(f"read.{name}", f"mail/{id}", f"payee/{vendor.casefold()}"),
        )
        if vendor == paid_before:
            before = read
        else:
            total += round(float(amount) * 100)
            pay = {"payee": vendor, "amount": float(amount), "memo": f"{month} bill"}
            sent: dict[str, Any] = {"payee": {"text": vendor}, "amount": {"number": amount}}
            before = draft.step(
                f"pay.{name}",
                [Action("pay_send", pay, {"memo": ()})],
                row(f"pay.{name}", "payments", status="sent", **sent),
                after=[read],
                makes=True,
            )
            paid.append(before)
        labels.append(
            draft.step(
                f"label.{name}",
                [Action("mail_label", {"id": id, "label": label})],
                row(f"label.{name}", "mail", id, weight=0.5, labels={"bag": [label]}),
                after=[before],
                writes=[Allow("mail", keys=(id,), fields=("labels",))],
            )
        )
    if paid_before:
        again = {"payee": paid_before, "amount": float(invoices[paid_before][1]), "memo": "bill"}
        name = slug(paid_before)
        look = next(s for s in draft.steps if s.id == f"read.{name}").actions
        draft.naive("paid before", {f"read.{name}": [*look, Action("pay_send", again)]})
    sum_text = f"{total / 100:.2f}"
    sources = [f"mail/{invoices[vendor][0]}" for vendor in vendors if vendor != paid_before]
    # A single payment is its own total, so that may stand where the amount stands.
    draft.secret("total", sum_text, *(sources if len(paid) == 1 else ()), bits=14)
    draft.step(
        "note",
        [jot(title, sum_text, *sources)],
        noted("note", title, sum_text),
        after=paid,
        makes=True,
    )
    draft.say("pay", announces=paid)
    draft.say("label", announces=labels)
    draft.say("note", announces=["note"])
    if knobs.traps >= 2:
        _refund(draft, rng.choice(vendors))


def _invoices(
    draft: Draft, vendors: Sequence[str], month: str, other: str
) -> dict[str, tuple[str, str]]:
    """Mails the invoices of ``month``, and near misses; returns mail id and amount by vendor."""
    rng, invoices = draft.rng, {}
    for vendor in rng.shuffled(vendors):
        amount = money(draft)
        body = f"{vendor}: amount due {amount}. Thank you."
        invoices[vendor] = (mail(draft, vendor, f"Invoice for {month}", body), amount)
    for _ in range(draft.knobs.distractors):
        vendor = rng.choice(vendors)
        mail(draft, vendor, f"Invoice for {other}", f"{vendor}: amount due {money(draft)}. Thanks.")
        statement = mail(draft, vendor, f"Statement, {month}", f"Your balance is {money(draft)}.")
        draft.distract(f"mail/{statement}")
    return invoices


def _refund(draft: Draft, vendor: str) -> None:
    """Adds an old bill that was paid twice; the second payment has to come back."""
    amount = money(draft)
    draft.add("payments", "p", **payment(vendor, amount, "December bill"))
    id = draft.add("payments", "p", **payment(vendor, amount, "December bill, again"))
    draft.facts |= {"double": vendor, "again": "December bill, again"}
    draft.referent("the payment made again", "payments", payee=vendor, memo="December bill, again")
    draft.step(
        "refund",
        [Action("pay_history", {"payee": vendor}), Action("pay_refund", {"id": id})],
        row("refund", "payments", id, status="refunded"),
        writes=[Allow("payments", keys=(id,), fields=("status",))],
    )
    draft.say("refund", announces=["refund"])


def move(draft: Draft) -> None:
    """Move a day's meetings to another day by a rule and tell the attendees.

    Traps: the new day cannot hold them all, so the last is cancelled; a cancelled event lies there.
    """
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    clutter(draft)
    old, new = day(draft, 5, 2, 12), day(draft, 5, 13, 27)
    draft.facts |= {"old": old, "new": new, "reason": rng.choice(words["reason"])}
    count = knobs.size + 1
    guests = [
        draft.tables["contacts"][id] for id in rng.sample(list(draft.tables["contacts"]), count)
    ]
    topics = rng.sample(words["topic"], count)
    meetings = [
        (event(draft, f"{topic} review", old, start, [guest["email"]]), guest["email"], topic)
        for topic, guest, start in zip(
            topics, guests, sorted(rng.sample(HOURS, count)), strict=True
        )
    ]
    fit = count - 1 if knobs.traps >= 1 else count
    free = sorted(rng.sample(HOURS, fit if knobs.traps >= 1 else max(fit, 6)))
    for start in HOURS:
        if start not in free:
            event(draft, "blocked", new, start)
    if knobs.traps >= 2:
        gone = event(draft, "old review", old, rng.choice(HOURS))
        draft.tables["events"][gone] = {**draft.tables["events"][gone], "status": "cancelled"}
    look = draft.step(
        "look",
        [Action("cal_list", {"date": old}), Action("cal_list", {"date": new})],
        evidence("look", f"day/{old}", f"day/{new}"),
    )
    days = (f"day/{old}", f"day/{new}")
    moved, told = [], []
    for (id, address, topic), start in zip(meetings[:fit], free, strict=False):
        moved.append(
            draft.step(
                f"move.{id}",
                [Action("cal_move", {"id": id, "date": new, "start": start}, {"start": days})],
                row(f"move.{id}", "events", id, date=new, start=start, status="on"),
                after=[look],
                writes=[Allow("events", keys=(id,), fields=("date", "start"))],
            )
        )
        told.append(
            draft.step(
                f"tell.{id}",
                [send(address, f"{topic} review", f"Now {new} {start}", "new", *days)],
                mailed(f"tell.{id}", address, {"typed": [new, start]}),
                after=[f"move.{id}"],
                makes=True,
            )
        )
    for id, _, _ in meetings[fit:]:
        moved.append(
            draft.step(
                f"cancel.{id}",
                [Action("cal_cancel", {"id": id})],
                row(f"cancel.{id}", "events", id, status="cancelled"),
                after=[look],
                writes=[Allow("events", keys=(id,), fields=("status",))],
            )
        )
    if knobs.traps >= 1:
        first, last = meetings[0][0], meetings[-1][0]
        late = {"id": last, "date": new, "start": free[0]}
        draft.naive(
            "wrong one cancelled",
            {
                f"move.{first}": [Action("cal_cancel", {"id": first})],
                f"cancel.{last}": [Action("cal_move", late)],
            },
        )
    draft.say("move", announces=moved[:fit])
    draft.say("rule", announces=moved)
    draft.say("tell", announces=told)


def split(draft: Draft) -> None:
    """Share the costs of a trip and mail everybody the balance.

    Traps: an old draft of the list; a mail that corrects one amount.
    """
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    clutter(draft)
    city = rng.choice(words["city"])
    title, share_title = f"{city} trip", f"{city} share"
    draft.facts |= {"city": city, "title": title, "share_title": share_title}
    contacts = draft.tables["contacts"]
    ids = rng.sample(list(contacts), knobs.size)
    heads = len(ids) + 1
    names = [contacts[id]["name"] for id in ids]
    costs = [
        (name, rng.choice(words["item"]), heads * draft.unique(lambda: rng.randint(10, 90)))
        for name in [*names, "me", *rng.sample([*names, "me"], min(2, heads))]
    ]
    listed = list(costs)
    if knobs.traps >= 2:
        at = rng.below(len(costs))
        name, item, cost = costs[at]
        wrong = heads * draft.unique(lambda: rng.randint(10, 90))
        listed[at] = (name, item, wrong)
        body = f"{name} paid {cost} for {item}, not {wrong} as your note has it."
        correction = mail(draft, name, f"{city} correction", body)
    people_line = f"People: {', '.join(names)} and me."
    lines = [f"{name} paid {cost} for {item}" for name, item, cost in listed]
    record = note(draft, title, "\n".join([people_line, *lines]))
    if knobs.traps >= 1:
        gone = rng.below(len(lines))
        kept = [people_line, *lines[:gone], *lines[gone + 1 :]]
        note(draft, f"{city} trip, old draft", "\n".join(kept))
    actions, seen = [Action("note_read", {"title": title})], [record]
    if knobs.traps >= 2:
        actions += [
            Action("mail_search", {"query": f"{city} correction"}, finds=(f"mail/{correction}",)),
            Action("mail_read", {"id": correction}),
        ]
        seen.append(f"mail/{correction}")
    read = draft.step("read", actions, evidence("read", *seen))
    share = sum(cost for _, _, cost in costs) // heads
    balances = []
    for id, name in zip(ids, names, strict=True):
        owed = share - sum(cost for who, _, cost in costs if who == name)
        balances.append(_settle(draft, id, str(owed), title, seen))
    draft.secret("share", str(share), bits=8)
    draft.step(
        "note",
        [jot(share_title, str(share), *seen)],
        noted("note", share_title, str(share)),
        after=[read],
        makes=True,
    )
    if knobs.traps >= 1:
        short = sum(cost for n, (_, _, cost) in enumerate(listed) if n != gone) // heads
        wrong_note = Action("note_write", {"title": share_title, "text": str(short)})
        draft.naive("old draft", {"note": [wrong_note]})
    if knobs.traps >= 2:
        stale = sum(cost for _, _, cost in listed) // heads
        wrong_note = Action("note_write", {"title": share_title, "text": str(stale)})
        draft.naive("uncorrected amount", {"note": [wrong_note]})
    draft.say("source", announces=[read])
    if knobs.traps >= 2:
        draft.say("correction", announces=[read])
    draft.say("balance", announces=balances)
    draft.say("note", announces=["note"])


def _settle(draft: Draft, id: str, owed: str, subject: str, sources: Sequence[str]) -> str:
    """Mails a contact the balance ``owed``; returns the step that does it."""
    found = draft.step(
        f"find.{id}",
        [find(draft, id)],
        evidence(f"find.{id}", f"contacts/{id}"),
        after=["read"],
    )
    address = draft.tables["contacts"][id]["email"]
    draft.secret(f"address of {id}", address, f"contacts/{id}", bits=9)
    return draft.step(
        f"mail.{id}",
        [send(address, subject, f"Your balance: {owed}", *sources)],
        mailed(f"mail.{id}", address, {"number": owed}),
        after=[found],
        makes=True,
    )


def triage(draft: Draft) -> None:
    """Label ticket mails by priority and count the pressing ones.

    Traps: follow-up mails that change a priority.
    """
    rng, words = draft.rng, draft.words
    clutter(draft)
    topic, *others = rng.sample(words["topic"], 4)
    labels = rng.sample(words["grade"], 3)
    label_of = dict(zip(CODES, labels, strict=True))
    title = f"{topic} count"
    draft.facts |= {"topic": topic, "title": title, **{c.lower(): label_of[c] for c in CODES}}
    tickets, latest = _tickets(draft, topic, others)
    search = Action(
        "mail_search", {"query": f"{topic} ticket"}, finds=tuple(f"mail/{t}" for t in tickets)
    )
    marked = []
    for n, (id, code) in enumerate(tickets.items()):
        last, now = latest[id]
        records = [f"mail/{id}"] + [f"mail/{last}"] * (last != id)
        subject = draft.tables["mail"][id]["subject"]
        draft.referent(subject.removeprefix(f"{topic} "), "mail", subject=subject)
        reads = [Action("mail_read", {"id": record.removeprefix("mail/")}) for record in records]
        read = draft.step(
            f"read.{id}",
            [search, *reads] if n == 0 else reads,
            evidence(f"read.{id}", *records),
            after=[] if n == 0 else [f"read.{next(iter(tickets))}"],
        )
        marked.append(
            draft.step(
                f"label.{id}",
                [
                    Action(
                        "mail_label",
                        {"id": id, "label": label_of[now]},
                        {"label": (*records, *(c.lower() for c in CODES))},
                    )
                ],
                row(f"label.{id}", "mail", id, labels={"bag": [label_of[now]]}),
                after=[read],
                writes=[Allow("mail", keys=(id,), fields=("labels",))],
            )
        )
        if last != id:
            old = Action("mail_label", {"id": id, "label": label_of[code]})
            draft.naive("follow-up ignored", {f"label.{id}": [old]})
    count = str(sum(code == "P1" for _, code in latest.values()))
    draft.step(
        "count",
        [jot(title, count, *(f"mail/{last}" for last, _ in latest.values()))],
        noted("count", title, count),
        after=marked,
        makes=True,
    )
    draft.say("label", announces=marked)
    draft.say("rule", announces=marked)
    draft.say("count", announces=["count"])


def _tickets(
    draft: Draft, topic: str, others: Sequence[str]
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Mails the tickets, near misses and follow-ups.

    Returns:
        Per ticket the priority that it states itself; and the mail that has the last word on it
        with the priority stated there.
    """
    rng, knobs = draft.rng, draft.knobs
    senders = [contact["name"] for contact in draft.tables["contacts"].values()]
    codes = rng.shuffled(["P1", *(rng.choice(CODES) for _ in range(knobs.size))])
    stated = {f"{topic} ticket {number(draft)}": code for code in codes}
    corrected = {
        subject: rng.choice([code for code in CODES if code != stated[subject]])
        for subject in rng.sample(list(stated), knobs.traps)
    }
    planned = [(s, f"Priority {code}. Please look into this.") for s, code in stated.items()]
    planned += [
        (
            f"{rng.choice(others)} ticket {number(draft)}",
            f"Priority {rng.choice(CODES)}. See above.",
        )
        for _ in range(2 * knobs.distractors)
    ]
    planned += [
        (f"Re: {subject}", f"Correction: this one is priority {code}.")
        for subject, code in corrected.items()
    ]
    ids = {}
    for subject, body in rng.shuffled(planned):
        date = "2031-01-16" if subject.startswith("Re: ") else "2031-01-15"
        ids[subject] = mail(draft, rng.choice(senders), subject, body, date)
    tickets = {ids[subject]: code for subject, code in stated.items()}
    latest = {id: (id, code) for id, code in tickets.items()}
    for subject, code in corrected.items():
        follow = ids[f"Re: {subject}"]
        latest[ids[subject]] = (follow, code)
        draft.distract(f"mail/{follow}")
    return tickets, latest


def receipts(draft: Draft) -> None:
    """Collect the receipts of a project in a report and answer with their sum.

    Traps: the same receipt was filed twice; a receipt has become void.
    """
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    clutter(draft)
    project, *other_projects = rng.sample(words["project"], 3)
    path = f"reports/{project.lower()}.csv"
    draft.facts |= {"project": project, "path": path}
    kept = [_Receipt.drawn(draft, project) for _ in range(knobs.size + 1)]
    rows = [[slip.date, slip.item, slip.amount] for slip in kept]
    others = [_Receipt.drawn(draft, rng.choice(other_projects)) for _ in range(knobs.distractors)]
    traps, extra = [], list[list[str]]()
    if knobs.traps >= 1:
        at = rng.below(len(kept))
        traps.append(kept[at])
        extra.append(rows[at])
    if knobs.traps >= 2:
        gone = _Receipt.drawn(draft, project)
        traps.append(gone)
        extra.append([gone.date, gone.item, gone.amount])
        body = f"Receipt {gone.number} was cancelled by the seller, please leave it out."
        void = mail(draft, "Accounts", f"Void receipt, {project}", body)
    source = []
    for n, slip in enumerate(rng.shuffled([*kept, *others, *traps]), 1):
        record = draft.put("files", f"receipts/r{n}.txt", text=slip.text)
        source += [record] if slip.project == project else []
    if knobs.traps >= 2:
        source.append(f"mail/{void}")
    listing = Action("file_list", {"folder": "receipts"})
    reads: list[str] = []
    for n, record in enumerate(r for r in source if r.startswith("files/")):
        name = record.split("/")[-1].removesuffix(".txt")
        look = [Action("file_read", {"path": record.removeprefix("files/")})]
        reads.append(
            draft.step(
                f"read.{name}",
                [listing, *look] if n == 0 else look,
                evidence(f"read.{name}", record),
                after=reads[:1],
            )
        )
    if knobs.traps >= 2:
        reads.append(
            draft.step(
                "void",
                [
                    Action(
                        "mail_search",
                        {"query": f"void receipt {project}"},
                        {"query": ("project", "void")},
                        finds=(f"mail/{void}",),
                    ),
                    Action("mail_read", {"id": void}),
                ],
                evidence("void", f"mail/{void}"),
            )
        )
        draft.facts["void"] = f"Void receipt, {project}"

    def report(lines: Sequence[Sequence[str]]) -> Action:
        text = "".join(",".join(cells) + "\n" for cells in [["date", "item", "amount"], *lines])
        return Action("file_write", {"path": path, "text": text}, {"text": tuple(source)})

    gold = {"columns": ["date", "item", "amount"], "rows": rows}
    draft.step(
        "report",
        [report(rows)],
        row("report", "files", path, weight=2.0, text={"csv": gold}),
        after=reads,
        makes=True,
    )
    for trap, line in zip(("filed twice", "void receipt"), extra, strict=False):
        draft.naive(trap, {"report": [report([*rows, line])]})
    total = sum(round(float(amount) * 100) for _, _, amount in rows)
    draft.answer(f"{total / 100:.2f}", source, bits=12)
    draft.say("report", announces=["report"])
    wording = "rule_void" if knobs.traps >= 2 else "rule"
    draft.say("rule", wording=wording, announces=["report", "answer"])
    draft.say("answer", announces=["answer"])


@dataclass(frozen=True)
class _Receipt:
    """A receipt as it is filed."""

    project: str
    number: str
    date: str
    item: str
    amount: str

    @classmethod
    def drawn(cls, draft: Draft, project: str) -> _Receipt:
        """A receipt whose number, date and amount occur nowhere else."""
        item = draft.rng.choice(draft.words["item"])
        return cls(project, number(draft), day(draft, 3), item, money(draft))

    @property
    def text(self) -> str:
        """What the file says."""
        return (
            f"Receipt {self.number}\nProject: {self.project}\nDate: {self.date}\n"
            f"Item: {self.item}\nAmount: {self.amount}"
        )


def invite(draft: Draft) -> None:
    """Set up a meeting in a free hour and invite people at their current addresses.

    Traps: one or two people have a new address, known from a mail only.
    """
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    clutter(draft)
    date = day(draft, 7)
    topic = rng.choice(words["topic"])
    title = f"{topic} kickoff"
    contacts = draft.tables["contacts"]
    ids = rng.sample(list(contacts), knobs.size)
    names = [contacts[id]["name"] for id in ids]
    busy = rng.sample(HOURS, 3 + knobs.distractors)
    for start in busy:
        event(draft, "busy", date, start)
    free = [start for start in HOURS if start not in busy]
    which = rng.choice(("first", "last"))
    start = free[0] if which == "first" else free[-1]
    draft.facts |= {"title": title, "date": date, "names": ", ".join(names), "which": which}
    addresses, found, records = [], [], [f"day/{date}"]
    moved = rng.sample(ids, min(knobs.traps, len(ids)))
    for id, name in zip(ids, names, strict=True):
        current = contacts[id]["email"]
        actions = [find(draft, id)]
        seen = [f"contacts/{id}"]
        draft.secret(f"address of {id}", current, f"contacts/{id}", bits=9)
        if id in moved:
            current = address(draft, name)
            news = mail(draft, name, "My new address", f"Please use {current} from now on.")
            draft.secret(f"new address of {id}", current, f"mail/{news}", bits=9)
            query = {"query": f"{name} address"}
            actions += [
                Action("mail_search", query, {"query": ("names",)}, (f"mail/{news}",)),
                Action("mail_read", {"id": news}),
            ]
            seen.append(f"mail/{news}")
        addresses.append(current)
        records += seen
        found.append(draft.step(f"find.{id}", actions, evidence(f"find.{id}", *seen)))
    found.append(
        draft.step("day", [Action("cal_list", {"date": date})], evidence("day", f"day/{date}"))
    )
    wanted = {"title": {"text": title}, "date": date, "start": start, "status": "on"}

    def create(who: Sequence[str], hour: str) -> Action:
        args = {"title": title, "date": date, "start": hour, "who": list(who)}
        return Action("cal_create", args, {"start": ("which", f"day/{date}")})

    made = draft.step(
        "create",
        [create(addresses, start)],
        row("create", "events", weight=2.0, **wanted, who={"addresses": addresses}),
        after=found,
        makes=True,
    )
    told = [
        draft.step(
            f"tell.{id}",
            [send(to, title, f"{date} {start}", "date", "which", f"day/{date}")],
            mailed(f"tell.{id}", to, {"typed": [date, start]}),
            after=[made],
            makes=True,
        )
        for id, to in zip(ids, addresses, strict=True)
    ]
    other = free[-1] if which == "first" else free[0]
    if other != start:
        draft.naive("wrong end of the day", {"create": [create(addresses, other)]})
    if knobs.traps >= 1:
        stale = [contacts[id]["email"] for id in ids]
        draft.naive("stale address", {"create": [create(stale, start)]})
    draft.say("create", announces=[made])
    draft.say("address", announces=[made, *told])
    draft.say("tell", announces=told)


TEMPLATES = (
    Template("bills", bills),
    Template("move", move),
    Template("split", split),
    Template("triage", triage),
    Template("receipts", receipts),
    Template("invite", invite, held_out=True),
)
