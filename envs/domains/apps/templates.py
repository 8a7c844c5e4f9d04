"""Six families of office work. Each function drafts one world: state, workflow, checks, wording.

Every sentence has at least three wordings; the last third never occurs in the train split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.envs.domain import Template
from headway.envs.domains.apps.tools import HOURS
from headway.envs.world import Action, Draft
from headway.verifiers import Allow, Check

NO_WORDS = ("", "", "")
VOID_DO = (
    " Leave out the one that the mail '{void}' names.",
    " Skip what is cancelled by a mail with the subject '{void}'.",
    " Disregard whichever has been declared invalid in the mail '{void}'.",
)
VOID_WANT = (
    " A mail with the subject '{void}' names one that does not count.",
    " The one that is cancelled in the mail '{void}' is not among them.",
    " One of them is missing, since the mail '{void}' has declared it invalid.",
)
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August")


def people(draft: Draft, count: int) -> list[str]:
    """Adds ``count`` contacts with names that share no word and returns their ids."""
    first = draft.rng.sample(draft.words["first"], count)
    names = [f"{name} {draft.rng.choice(draft.words['last'])}" for name in first]
    return [
        draft.add(
            "contacts",
            "c",
            name=name,
            email=f"{name.lower().replace(' ', '.')}@corp.example",
            team=draft.rng.choice(draft.words["team"]),
        )
        for name in names
    ]


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


def mail(draft: Draft, sender: str, subject: str, body: str) -> str:
    """Adds a received mail and returns its id."""
    row = {"from": sender, "to": "me", "subject": subject, "body": body}
    return draft.add("mail", "m", **row, date="2031-01-15", labels=[])


def event(draft: Draft, title: str, date: str, start: str, who: Sequence[str] = ()) -> str:
    """Adds an event and returns its id."""
    return draft.add("events", "e", title=title, date=date, start=start, who=list(who), status="on")


def note(draft: Draft, title: str, text: str) -> str:
    """Adds a note and returns its record name."""
    return f"notes/{draft.add('notes', 'n', title=title, text=text)}"


def payment(payee: str, amount: str, memo: str) -> dict[str, Any]:
    """A row of payments."""
    return {"payee": payee, "amount": amount, "memo": memo, "status": "sent"}


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


def bills(draft: Draft) -> None:
    """Pay the month's invoices, label them, note the total.

    Traps: one invoice was paid before; an old bill was paid twice and has to be refunded.
    """
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    clutter(draft)
    month, other = rng.sample(MONTHS, 2)
    label = rng.choice(words["label"])
    vendors = rng.sample(words["vendor"], knobs.size)
    paid_before = vendors[-1] if knobs.traps >= 1 else None
    invoices = {}
    for vendor in rng.shuffled(vendors):
        amount = money(draft)
        body = f"{vendor}: amount due {amount}. Thank you."
        invoices[vendor] = (mail(draft, vendor, f"Invoice for {month}", body), amount)
    for _ in range(knobs.distractors):
        vendor = rng.choice(vendors)
        mail(draft, vendor, f"Invoice for {other}", f"{vendor}: amount due {money(draft)}. Thanks.")
        statement = mail(draft, vendor, f"Statement, {month}", f"Your balance is {money(draft)}.")
        draft.distract(f"mail/{statement}")
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
        places = [f"mail/{id}"] + ["payments/old"] * (vendor == paid_before)
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
            draft.put("payments", "old", **payment(vendor, amount, f"{month} bill"))
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
    if knobs.traps >= 2:
        _refund(draft, vendors[0])
    sum_text = f"{total / 100:.2f}"
    draft.secret("total", sum_text, *_only_mail(draft, paid, invoices, vendors), bits=14)
    draft.step(
        "note",
        [
            Action(
                "note_write",
                {"title": title, "text": sum_text},
                {"text": tuple(f"mail/{invoices[v][0]}" for v in vendors if v != paid_before)},
            )
        ],
        noted("note", title, sum_text),
        after=paid,
        makes=True,
    )
    draft.vague = (
        "My {month} bills need paying.",
        "Please see to the {month} invoices.",
        "The invoices of {month} are waiting.",
    )
    draft.say(
        "pay",
        do=(
            "Pay the {month} invoices of these suppliers that are not paid yet: {vendors}.",
            "Settle every {month} invoice from {vendors} for which no payment exists so far.",
            "From {vendors} there are {month} invoices in my mail; transfer what is still open.",
        ),
        want=(
            "All {month} invoices of {vendors} should be paid once; some may be paid already.",
            "I want each {month} invoice from {vendors} to have exactly one payment in the end.",
            "Nothing billed for {month} by {vendors} may stay open, and nothing is paid a second "
            "time.",
        ),
        announces=paid,
        ask=("invoices", "pay", "suppliers", "bills"),
    )
    draft.say(
        "label",
        do=(
            "Label each of these {month} invoice mails '{label}', also those paid before.",
            "Once it is paid, put the label '{label}' on each of those {month} invoice mails; the "
            "ones that were paid earlier get it too.",
            "Mark every one of the said {month} invoices with '{label}', whenever it was paid.",
        ),
        want=(
            "Every one of these {month} invoice mails carries the label '{label}', also if it had "
            "been paid before.",
            "The {month} invoice mails, old payments included, are all labelled '{label}'.",
            "In my mailbox '{label}' is then the label of each such {month} invoice, no matter who "
            "paid it when.",
        ),
        announces=labels,
        ask=("label", "mark"),
        rule=True,
    )
    draft.say(
        "note",
        do=(
            "Write a note titled '{title}' that holds only the sum you paid now.",
            "Then save the total of the payments you made yourself, and nothing else, in a note "
            "'{title}'.",
            "Finish with a note under the title '{title}': the amount paid by you today, that "
            "number alone.",
        ),
        want=(
            "A note titled '{title}' holds the sum of the payments you made yourself, as its only "
            "number.",
            "There is a note '{title}' with just one number, the total that you have paid.",
            "What you spent altogether can be read in '{title}', a new note with this one figure.",
        ),
        announces=["note"],
        ask=("note", "total", "sum"),
    )


def _only_mail(
    draft: Draft, paid: Sequence[str], invoices: dict[str, tuple[str, str]], vendors: Sequence[str]
) -> tuple[str, ...]:
    """With a single payment the total is that invoice's amount and stands where that stands."""
    if len(paid) > 1:
        return ()
    return (f"mail/{invoices[vendors[0]][0]}",)


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
    draft.say(
        "refund",
        do=(
            "Get the payment to {double} with the memo '{again}' refunded; it was a mistake.",
            "To {double} a bill was paid twice: have the payment with the memo '{again}' undone.",
            "Claim back what went to {double} under the memo '{again}', a double payment.",
        ),
        want=(
            "The payment '{again}' to {double} was made by mistake and should be refunded.",
            "One payment to {double} was a double one; that with the memo '{again}' is refunded.",
            "By mistake {double} got money twice, and the part called '{again}' has come back.",
        ),
        announces=["refund"],
        ask=("refund", "double", "mistake"),
    )


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
                [
                    Action(
                        "mail_send",
                        {"to": address, "subject": f"{topic} review", "body": f"Now {new} {start}"},
                        {"subject": (), "body": ("new", *days)},
                    )
                ],
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
    draft.vague = (
        "I am away on {old}, so please sort out my meetings.",
        "My meetings of {old} cannot take place.",
        "On {old} I have to be elsewhere; deal with the appointments.",
    )
    draft.say(
        "move",
        do=(
            "Move all my meetings of {old} to {new}, because of {reason}.",
            "Clear {old} ({reason}): every meeting of that day goes to {new}.",
            "Owing to {reason}, transfer whatever meetings I have on {old} to {new}.",
        ),
        want=(
            "Because of {reason} none of my meetings is on {old} any more; they are on {new}.",
            "All meetings that I have on {old} should take place on {new}; the reason is {reason}.",
            "With {reason} coming up, {new} takes over the meetings that stand on {old}.",
        ),
        announces=[*moved[:fit]],
        ask=("meetings", "day", "move"),
    )
    draft.say(
        "rule",
        do=(
            "Keep their order of start time and give each the earliest hour that is free on the "
            "new day; an hour holds one meeting, full hours from 08:00 to 17:00, and what no "
            "longer fits is cancelled.",
            "Take them by start time: each gets the first free full hour of the new day (08:00 "
            "to 17:00, one meeting an hour). Cancel those that find no hour.",
            "Going through them in the order in which they start, fill the free full hours "
            "between 08:00 and 17:00 from the morning on, one each, and call off the rest.",
        ),
        want=(
            "On the new day they keep their order of start time, each in the earliest hour that "
            "is free (full hours, 08:00 to 17:00, one meeting an hour); what does not fit is "
            "cancelled.",
            "In the order of their start times they fill the free full hours of the new day, "
            "first hour first, from 08:00 to 17:00, one to an hour; the rest is cancelled.",
            "The sooner a meeting started, the sooner it starts on the new day: free full hours "
            "between 08:00 and 17:00 are used up one by one, and leftovers are called off.",
        ),
        announces=moved,
        ask=("rule", "hours", "order", "cancel"),
        rule=True,
    )
    draft.say(
        "tell",
        do=(
            "Mail the attendee of each moved meeting the new date and start hour, one mail each, "
            "with no other date or time in the body.",
            "Tell the attendee of every meeting you moved by one mail with the new date and hour; "
            "the body has no other dates or times.",
            "Whoever attends a meeting that was moved gets a single mail stating its new date and "
            "starting time and no further date or time.",
        ),
        want=(
            "The attendee of each moved meeting has got one mail whose body has the new date and "
            "hour and no other date or time.",
            "One mail has gone to the attendee of each meeting that was moved; the only date and "
            "time in its body are the new ones.",
            "For each meeting moved, its attendee learned the new date and starting time, and no "
            "other, from exactly one mail.",
        ),
        announces=told,
        ask=("attendee", "mail", "tell"),
    )


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
        name, item, cost = costs[0]
        wrong = heads * draft.unique(lambda: rng.randint(10, 90))
        listed[0] = (name, item, wrong)
        body = f"{name} paid {cost} for {item}, not {wrong} as your note has it."
        correction = mail(draft, name, f"{city} correction", body)
    people_line = f"People: {', '.join(names)} and me."
    lines = [f"{name} paid {cost} for {item}" for name, item, cost in listed]
    record = note(draft, title, "\n".join([people_line, *lines]))
    if knobs.traps >= 1:
        note(draft, f"{city} trip, old draft", "\n".join([people_line, *lines[1:]]))
    actions, seen = [Action("note_read", {"title": title})], [record]
    if knobs.traps >= 2:
        actions += [
            Action("mail_search", {"query": f"{city} correction"}, finds=(f"mail/{correction}",)),
            Action("mail_read", {"id": correction}),
        ]
        seen.append(f"mail/{correction}")
    read = draft.step("read", actions, evidence("read", *seen))
    share = sum(cost for _, _, cost in costs) // heads
    balances, found = [], []
    for id, name in zip(ids, names, strict=True):
        owed = str(share - sum(cost for who, _, cost in costs if who == name))
        address = contacts[id]["email"]
        found.append(
            draft.step(
                f"find.{id}",
                [Action("contacts_find", {"name": name}, finds=(f"contacts/{id}",))],
                evidence(f"find.{id}", f"contacts/{id}"),
                after=[read],
            )
        )
        balances.append(
            draft.step(
                f"mail.{id}",
                [
                    Action(
                        "mail_send",
                        {"to": address, "subject": title, "body": f"Your balance: {owed}"},
                        {"subject": (), "body": tuple(seen)},
                    )
                ],
                mailed(f"mail.{id}", address, {"number": owed}),
                after=[found[-1]],
                makes=True,
            )
        )
    draft.secret("share", str(share), bits=8)
    draft.step(
        "note",
        [Action("note_write", {"title": share_title, "text": str(share)}, {"text": tuple(seen)})],
        noted("note", share_title, str(share)),
        after=[read],
        makes=True,
    )
    if knobs.traps >= 1:
        short = sum(cost for _, _, cost in listed[1:]) // heads
        wrong_note = Action("note_write", {"title": share_title, "text": str(short)})
        draft.naive("old draft", {"note": [wrong_note]})
    if knobs.traps >= 2:
        stale = sum(cost for _, _, cost in listed) // heads
        wrong_note = Action("note_write", {"title": share_title, "text": str(stale)})
        draft.naive("uncorrected amount", {"note": [wrong_note]})
    draft.vague = (
        "The costs of the {city} trip have to be shared.",
        "Please sort out who owes what for {city}.",
        "We still have to settle up after {city}.",
    )
    draft.say(
        "source",
        do=(
            "Read the note '{title}'; it lists who paid what.",
            "Take our costs from my note '{title}'.",
            "Go by what everybody spent according to the note called '{title}'.",
        ),
        want=(
            "The note '{title}' lists what we spent and who was there.",
            "What each of us paid stands in my note '{title}'.",
            "All spending counts that is written down in the note called '{title}'.",
        ),
        announces=[read],
        ask=("list", "costs", "spent"),
    )
    if knobs.traps >= 2:
        draft.say(
            "correction",
            do=(
                "Look for a mail with the subject '{city} correction'; its amount is the right "
                "one.",
                "Where the mail '{city} correction' names another amount than the note, use the "
                "mail's.",
                "An amount was noted wrongly: the mail headed '{city} correction' has what was "
                "really paid.",
            ),
            want=(
                "Where the mail '{city} correction' differs from the note, the mail is right.",
                "One amount in the note is wrong; a mail with the subject '{city} correction' "
                "has the right one.",
                "For the amount that somebody put right in the mail '{city} correction', that "
                "figure holds.",
            ),
            announces=[read],
            ask=("correction", "wrong", "right"),
        )
    draft.say(
        "balance",
        do=(
            "Share all of it equally among everybody named there, me included, and mail each "
            "other person one mail whose body has their balance as its only number: the equal "
            "share minus what they paid, negative if they get money back.",
            "Divide the whole sum equally, counting me, and send each of the others one mail; "
            "the only number in its body is the balance, that is share minus own payments (below "
            "zero if money comes back).",
            "Everybody, myself too, bears the same part. Write to each of the others once, the "
            "body holding a single number: that part less what the person has paid, with a minus "
            "sign when they are owed.",
        ),
        want=(
            "All costs are shared equally among everybody named there, me included. Each other "
            "person has got one mail whose body has the balance as its only number: share minus "
            "what they paid, negative if they get money back.",
            "Everyone named, and I, carries an equal share. One mail to each of the others has "
            "their balance (share minus payments, negative if money comes back) as the only "
            "number of its body.",
            "The burden is the same for each person, myself too, and by a single mail every other "
            "one knows the difference between that and what they laid out, a lone number in the "
            "body with a minus sign if they are owed.",
        ),
        announces=balances,
        ask=("balance", "mail", "owes"),
        rule=True,
    )
    draft.say(
        "note",
        do=(
            "Put the equal share alone into the note '{share_title}'.",
            "Save the share, just that number, as a note titled '{share_title}'.",
            "Record in a note '{share_title}' the part that each one bears and no other number.",
        ),
        want=(
            "A note '{share_title}' holds the equal share as its only number.",
            "The share, and no other number, stands in a note titled '{share_title}'.",
            "What each one bears can be looked up in a note '{share_title}' that says this number "
            "alone.",
        ),
        announces=["note"],
        ask=("note", "share"),
    )


def triage(draft: Draft) -> None:
    """Label ticket mails by priority and count the pressing ones.

    Traps: follow-up mails that change a priority.
    """
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    clutter(draft)
    topic, *others = rng.sample(words["topic"], 4)
    labels = rng.sample(words["grade"], 3)
    codes = ("P1", "P2", "P3")
    label_of = dict(zip(codes, labels, strict=True))
    title = f"{topic} count"
    draft.facts |= {"topic": topic, "title": title, **{c.lower(): label_of[c] for c in codes}}
    senders = [c["name"] for c in draft.tables["contacts"].values()]
    number = {}
    tickets: dict[str, str] = {}
    for i in range(knobs.size + 1):
        code = "P1" if i == 0 else rng.choice(codes)
        no = draft.unique(lambda: str(rng.randint(1000, 9999)))
        body = f"Priority {code}. Please look into this."
        id = mail(draft, rng.choice(senders), f"{topic} ticket {no}", body)
        tickets[id], number[id] = code, no
    for _ in range(2 * knobs.distractors):
        subject = (
            f"{rng.choice(others)} ticket {draft.unique(lambda: str(rng.randint(1000, 9999)))}"
        )
        mail(draft, rng.choice(senders), subject, f"Priority {rng.choice(codes)}. See above.")
    changed = {}
    for id in list(tickets)[: knobs.traps]:
        code = rng.choice([c for c in codes if c != tickets[id]])
        body = f"Correction: this one is priority {code}."
        changed[id] = (
            mail(draft, rng.choice(senders), f"Re: {topic} ticket {number[id]}", body),
            code,
        )
        draft.distract(f"mail/{changed[id][0]}")
    search = Action(
        "mail_search", {"query": f"{topic} ticket"}, finds=tuple(f"mail/{t}" for t in tickets)
    )
    marked = []
    for n, (id, code) in enumerate(tickets.items()):
        follow, now = changed.get(id, (None, code))
        records = [f"mail/{id}"] + ([f"mail/{follow}"] if follow else [])
        draft.referent(f"ticket {number[id]}", "mail", subject=f"{topic} ticket {number[id]}")
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
                        {"label": (*records, *(c.lower() for c in codes))},
                    )
                ],
                row(f"label.{id}", "mail", id, labels={"bag": [label_of[now]]}),
                after=[read],
                writes=[Allow("mail", keys=(id,), fields=("labels",))],
            )
        )
        if follow:
            old = Action("mail_label", {"id": id, "label": label_of[code]})
            draft.naive("follow-up ignored", {f"label.{id}": [old]})
    final = [changed[id][1] if id in changed else code for id, code in tickets.items()]
    count = str(final.count("P1"))
    draft.step(
        "count",
        [
            Action(
                "note_write",
                {"title": title, "text": count},
                {
                    "text": tuple(
                        f"mail/{changed[id][0] if id in changed else id}" for id in tickets
                    )
                },
            )
        ],
        noted("count", title, count),
        after=marked,
        makes=True,
    )
    draft.vague = (
        "My {topic} tickets are a mess.",
        "Somebody has to go through the {topic} tickets.",
        "The {topic} tickets need sorting.",
    )
    draft.say(
        "label",
        do=(
            "Label each mail that is a {topic} ticket by its priority, one label a mail.",
            "Go through the {topic} ticket mails and give each the one label that its priority "
            "asks for.",
            "Sort the mails titled {topic} ticket: every one receives a single label that depends "
            "on its priority.",
        ),
        want=(
            "Each mail that is a {topic} ticket carries one label, the one for its priority.",
            "All my {topic} ticket mails are labelled by priority, with one label each.",
            "On every mail titled {topic} ticket there is a single label that tells its priority.",
        ),
        announces=marked,
        ask=("tickets", "mails", "go"),
    )
    draft.say(
        "rule",
        do=(
            "P1 is '{p1}', P2 is '{p2}', P3 is '{p3}'; where a reply with the same ticket number "
            "corrects a priority, that one counts, and only the first mail is labelled.",
            "Use '{p1}' for P1, '{p2}' for P2 and '{p3}' for P3. A later mail about the same "
            "number may change the priority; label the ticket itself, not the later mail.",
            "The labels are '{p1}' (P1), '{p2}' (P2) and '{p3}' (P3). If some answer to a ticket "
            "gives a new priority then go by it, yet leave the answer without a label.",
        ),
        want=(
            "The label is '{p1}' for P1, '{p2}' for P2 and '{p3}' for P3; a reply with the same "
            "number may correct the priority and stays unlabelled itself.",
            "P1 means '{p1}', P2 '{p2}', P3 '{p3}'. Where a later mail with that number corrects "
            "the priority, the correction holds; the later mail gets no label.",
            "They read '{p1}' at P1, '{p2}' at P2 and '{p3}' at P3, going by the newest word on "
            "that ticket number, while answers to tickets have none.",
        ),
        announces=marked,
        ask=("label", "priority", "rule"),
        rule=True,
    )
    draft.say(
        "count",
        do=(
            "Then write how many are P1, as the only number, into a note titled '{title}'.",
            "Save the number of P1 tickets, and nothing else, in a note '{title}'.",
            "Afterwards put down in a note '{title}' how often P1 occurs among them, just the "
            "figure.",
        ),
        want=(
            "A note '{title}' says how many of them are P1, as its only number.",
            "The number of P1 tickets stands alone in a note titled '{title}'.",
            "How often P1 occurs among them can be seen in a note '{title}' that has this figure "
            "only.",
        ),
        announces=["count"],
        ask=("note", "count", "many"),
    )


def receipts(draft: Draft) -> None:
    """Collect the receipts of a project in a report and answer with their sum.

    Traps: the same receipt was filed twice; a receipt has become void.
    """
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    clutter(draft)
    project, *others = rng.sample(words["project"], 3)
    path = f"reports/{project.lower()}.csv"
    draft.facts |= {"project": project, "path": path}
    kept: list[tuple[str, str, str, str]] = []
    for _ in range(knobs.size + 1):
        kept.append(_receipt(draft, project))
    for _ in range(knobs.distractors):
        _receipt(draft, rng.choice(others))
    source = [record for record, *_ in kept]
    rows = [[date, item, amount] for _, date, item, amount in kept]
    extra: list[list[str]] = []
    if knobs.traps >= 1:
        copy = draft.tables["files"][kept[0][0].removeprefix("files/")]["text"]
        source.append(draft.put("files", f"receipts/r{_files(draft)}.txt", text=copy))
        extra.append(rows[0])
    if knobs.traps >= 2:
        record, date, item, amount = _receipt(draft, project)
        no = draft.tables["files"][record.removeprefix("files/")]["text"].split()[1]
        body = f"Receipt {no} was cancelled by the seller, please leave it out."
        void = mail(draft, "Accounts", f"Void receipt, {project}", body)
        source += [record, f"mail/{void}"]
        extra.append([date, item, amount])
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
        Check(
            "report", "rows", {"table": "files", "key": path, "where": {"text": {"csv": gold}}}, 2.0
        ),
        after=reads,
        makes=True,
    )
    for trap, line in zip(("filed twice", "void receipt"), extra, strict=False):
        draft.naive(trap, {"report": [report([*rows, line])]})
    total = sum(round(float(amount) * 100) for _, _, amount in rows)
    draft.answer(f"{total / 100:.2f}", source, bits=12)
    draft.vague = (
        "The expenses of {project} have to be reported.",
        "I need the costs of {project} put together.",
        "Someone asked for what {project} has spent.",
    )
    draft.say(
        "report",
        do=(
            "Collect the receipts of project {project} from the folder receipts in the file "
            "{path}, as CSV with the columns date, item and amount, a line a receipt.",
            "Go through the files in receipts and write those of project {project} into {path}: "
            "CSV, first line date,item,amount, then one line for each receipt.",
            "Make a CSV file {path} that has the columns date, item, amount and a line for each "
            "of the receipts that the folder receipts has on project {project}.",
        ),
        want=(
            "The file {path} lists all receipts of project {project} from the folder receipts, as "
            "CSV with the columns date, item and amount.",
            "There is a CSV file {path} (columns date, item, amount) with one line for each "
            "receipt of project {project} in the folder receipts.",
            "Whatever the folder receipts has on project {project} is found in {path}, a CSV file "
            "with date, item and amount in this order.",
        ),
        announces=["report"],
        ask=("receipts", "file", "report"),
    )
    void_do, void_want = (VOID_DO, VOID_WANT) if knobs.traps >= 2 else (NO_WORDS, NO_WORDS)
    draft.say(
        "rule",
        do=(
            "A receipt that was filed twice, under the same number, counts once." + void_do[0],
            "Take care to count receipts with the same number only once." + void_do[1],
            "Files that repeat a receipt number are copies, so use one of them." + void_do[2],
        ),
        want=(
            "A receipt filed twice under the same number counts once." + void_want[0],
            "Of receipts with the same number only one counts." + void_want[1],
            "No receipt number is there more than once, as copies were filed." + void_want[2],
        ),
        announces=["report", "answer"],
        ask=("twice", "rule", "number"),
        rule=True,
    )
    draft.say(
        "answer",
        do=(
            "Submit the sum of all amounts in the report as your answer.",
            "As the answer hand in what the amounts in that file add up to.",
            "When you submit, give as answer the total over every line of it.",
        ),
        want=(
            "Your answer on submitting is the sum of the amounts in it.",
            "The answer that you submit is what its amounts add up to.",
            "What is handed in as answer equals the total over every line of that file.",
        ),
        announces=["answer"],
        ask=("answer", "sum", "total"),
    )


def _files(draft: Draft) -> int:
    return 1 + sum(path.startswith("receipts/") for path in draft.tables["files"])


def _receipt(draft: Draft, project: str) -> tuple[str, str, str, str]:
    """Files a receipt and returns its record, date, item and amount."""
    no = draft.unique(lambda: str(draft.rng.randint(1000, 9999)))
    date, item, amount = day(draft, 3), draft.rng.choice(draft.words["item"]), money(draft)
    text = f"Receipt {no}\nProject: {project}\nDate: {date}\nItem: {item}\nAmount: {amount}"
    return draft.put("files", f"receipts/r{_files(draft)}.txt", text=text), date, item, amount


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
    for n, (id, name) in enumerate(zip(ids, names, strict=True)):
        address = contacts[id]["email"]
        actions = [Action("contacts_find", {"name": name}, finds=(f"contacts/{id}",))]
        seen = [f"contacts/{id}"]
        if n < knobs.traps:
            address = address.replace("@corp", "@lab")
            news = mail(draft, name, "My new address", f"Please use {address} from now on.")
            query = {"query": f"{name} address"}
            actions += [
                Action("mail_search", query, {"query": ("names",)}, (f"mail/{news}",)),
                Action("mail_read", {"id": news}),
            ]
            seen.append(f"mail/{news}")
        addresses.append(address)
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
            [
                Action(
                    "mail_send",
                    {"to": address, "subject": title, "body": f"{date} {start}"},
                    {"subject": (), "body": ("date", "which", f"day/{date}")},
                )
            ],
            mailed(f"tell.{id}", address, {"typed": [date, start]}),
            after=[made],
            makes=True,
        )
        for id, address in zip(ids, addresses, strict=True)
    ]
    other = free[-1] if which == "first" else free[0]
    if other != start:
        draft.naive("wrong end of the day", {"create": [create(addresses, other)]})
    if knobs.traps >= 1:
        stale = [contacts[id]["email"] for id in ids]
        draft.naive("stale address", {"create": [create(stale, start)]})
    draft.vague = (
        "We need a meeting about the {title}.",
        "The {title} has to be put into the calendar.",
        "Please arrange the {title}.",
    )
    draft.say(
        "create",
        do=(
            "Create a meeting titled '{title}' on {date} with {names}, in the {which} hour that "
            "is free in my calendar that day (full hours, 08:00 to 17:00).",
            "Put '{title}' on {date} into my calendar, at the {which} free full hour between "
            "08:00 and 17:00, and invite {names}.",
            "For {date} enter '{title}' with {names} as guests, using my {which} unoccupied full "
            "hour from 08:00 to 17:00.",
        ),
        want=(
            "There is a meeting '{title}' on {date} with {names}, in the {which} hour that is "
            "free in my calendar that day (full hours, 08:00 to 17:00).",
            "My calendar has '{title}' on {date}, at the {which} free full hour between 08:00 "
            "and 17:00, with {names} invited.",
            "{names} and I meet on {date} for '{title}', which takes up my {which} unoccupied "
            "full hour from 08:00 to 17:00.",
        ),
        announces=[made],
        ask=("meeting", "when", "who"),
    )
    draft.say(
        "address",
        do=(
            "Use everybody's current address; a mail may have replaced the one in my contacts.",
            "Take the addresses from my contacts, unless somebody wrote that it has changed.",
            "Addresses come from the contacts; check the mails, for some of them have moved on.",
        ),
        want=(
            "Everybody is reached at the current address; a mail may have replaced the one in my "
            "contacts.",
            "The addresses are those in my contacts, or the newer one that somebody has mailed.",
            "Where someone has written in with a different address it has taken the place of that "
            "in the contacts.",
        ),
        announces=[made, *told],
        ask=("address", "contacts"),
        rule=True,
    )
    draft.say(
        "tell",
        do=(
            "Mail each of them the date and start hour, one mail each, with no other date or time "
            "in the body.",
            "Send every one of them one mail with its date and hour; the body has no other dates "
            "or times.",
            "Let each guest know by a single mail when it starts, naming that date and time and "
            "no further ones.",
        ),
        want=(
            "Each of them has got one mail with the date and start hour and no other date or time "
            "in the body.",
            "One mail to every one of them has its date and hour, the only ones in the body.",
            "Each guest knows from a single mail when it starts, the body naming that date and "
            "time and no further ones.",
        ),
        announces=told,
        ask=("mail", "tell"),
    )


TEMPLATES = (
    Template("bills", bills),
    Template("move", move),
    Template("split", split),
    Template("triage", triage),
    Template("receipts", receipts),
    Template("invite", invite, held_out=True),
)
