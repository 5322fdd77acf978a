"""Formats the table of tests/benchmarks/results/. Pure."""

import math

import judge
import rows as rows_module


def _loss(losses):
    mean, spread = judge.mean_and_spread(list(losses.values()))
    if math.isinf(mean):
        return "no end"
    text = "%.4f" % mean
    return text if math.isnan(spread) else text + " ± %.4f" % spread


def _difference(seen):
    if seen is None:
        return "-"
    if math.isinf(seen.mean):
        return "no end"
    text = "%+.2f %%" % (100 * seen.mean)
    if not math.isnan(seen.spread):
        text += " ± %.2f" % (100 * seen.spread)
    return text


def describe(claim):
    if claim.relation == rows_module.BESIDE:
        return "beside " + claim.reference
    return "%s %g %% of %s" % (claim.relation, 100 * claim.bound,
                               claim.reference)


def _millions(entries, key):
    values = [e[key] for e in entries if e.get(key) is not None]
    return "%.2f" % (sum(values) / len(values) / 1e6) if values else "-"


def _endings(entries):
    return sorted({e["ended"] for e in entries if e["ended"] != "COMPLETED"})


def claims_of(rows, played):
    """(row, claim, Difference or None, verdict) of each claim of `rows`.

    `played` has, by row's name, {seed: entry}.
    """
    losses = {name: {seed: math.inf if e["loss"] is None else e["loss"]
                     for seed, e in entries.items()}
              for name, entries in played.items()}
    for row in rows:
        if not losses.get(row.name):
            continue
        for claim in row.claims:
            seen = judge.difference(losses[row.name],
                                    losses.get(claim.reference, {}))
            yield (row, claim, seen,
                   judge.verdict(claim.relation, claim.bound, seen))


def markdown(rows, played, missing, header):
    """The table as Markdown. `missing`: by row's name, why it did not run."""
    lines = list(header)
    lines += ["", "Loss: nats a byte on all held-out text, mean and standard "
              "deviation over seeds. Difference: of the loss from the "
              "reference's, seed by seed, in percent. Tokens, MB: merged and "
              "pulled by all islands of a run.",
              "`holds` and `fails`: a one-sided 95 % interval of Student's t "
              "is on one side of the bound; `open`: it is not.",
              "Rows preset_*: a shipped preset, shortened to about as many "
              "inner steps as diloco has here. Most presets are for hundreds "
              "of rounds with larger batches (diloco.toml has one round "
              "here). These rows show the cost of a run that is far too short "
              "for its preset, not what the method can do.", "",
              "| row | what | seeds | loss | difference | claim | verdict | "
              "Mtokens | MB up | MB down | commit |",
              "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | "
              "--- |"]
    judged = {}
    for row, claim, seen, verdict in claims_of(rows, played):
        judged.setdefault(row.name, []).append((claim, seen, verdict))
    notes = []
    for row in rows:
        by_seed = played.get(row.name)
        if not by_seed:
            continue
        entries = list(by_seed.values())
        losses = {s: math.inf if e["loss"] is None else e["loss"]
                  for s, e in by_seed.items()}
        first = [row.name, row.what, str(len(entries)), _loss(losses)]
        last = [_millions(entries, "tokens"), _millions(entries, "bytes_up"),
                _millions(entries, "bytes_down"),
                ", ".join(sorted({e["commit"] for e in entries}))]
        # The first claim is on the row's line, further claims below.
        told = judged.get(row.name) or [None]
        for index, claim in enumerate(told):
            middle = ["", "", ""]
            if claim is not None:
                middle = [_difference(claim[1]), describe(claim[0]), claim[2]]
            cells = (first + middle + last if index == 0 else
                     [""] * 4 + middle + [""] * 4)
            lines.append("| %s |" % " | ".join(cells))
        notes += ["%s: %s" % (row.name, text) for text in _endings(entries)]
    if notes:
        lines += ["", "Ended before their last round:", ""]
        lines += ["- " + note for note in notes]
    if missing:
        lines += ["", "Not run:", ""]
        lines += ["- %s: %s" % (name, why) for name, why in missing.items()]
    return "\n".join(lines) + "\n"
