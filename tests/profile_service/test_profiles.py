"""Profiles as product teams see them: found, masked, revealed, unreadable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from idgraph.model import canonical
from idgraph.model.attributes import AttributeMetadata
from idgraph.model.errors import KeyProviderError, QueryError
from idgraph.model.identifiers import Identifier
from idgraph.model.queries import Clause, FullText, Prefix, Query, Range, Term
from idgraph.model.query_language import parse_query
from idgraph.model.store import FragmentWrite
from merge.fragments import FragmentState
from merge.identity.components import Member
from profile_service.reader import MASK, UNREADABLE, Profile
from tests.retail import UNDETECTED, Pipeline, attribute, order, persons_of, raw, records, snapshot, spec
from tests.sealing import sealed

USER = Identifier("user_id", "4493")
EMAIL = Identifier("email", "charles.wang@example.com")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = Pipeline(tmp_path)
    made.process(records(40))
    return made


def found(pipeline: Pipeline, *clauses: Clause, reveal: bool = False) -> list[Profile]:
    return pipeline.reader().search(Query(clauses), 1000, reveal=reveal).profiles


def one(pipeline: Pipeline, identifier: Identifier = USER, reveal: bool = False) -> dict[str, Any]:
    (profile,) = pipeline.reader().lookup(identifier, reveal)
    return profile.attributes()


def test_a_profile_is_found_by_each_of_its_identifiers(pipeline: Pipeline) -> None:
    (profile,) = pipeline.reader().lookup(USER)
    assert profile.id == str(USER)
    assert len(profile.identifiers) > 1
    assert list(profile.identifiers) == sorted(profile.identifiers)
    for identifier in profile.identifiers:
        assert profile.id in [each.id for each in pipeline.reader().lookup(identifier)]
    assert profile.id in [each.id for each in pipeline.reader().lookup(EMAIL)]
    assert pipeline.reader().lookup(Identifier("email", "nobody@example.com")) == []
    assert pipeline.reader().lookup(Identifier("user_id", "charles.wang@example.com")) == []


def test_protected_values_are_masked_and_revealed_on_request(pipeline: Pipeline) -> None:
    masked, revealed = one(pipeline), one(pipeline, reveal=True)
    assert masked["identity"]["email"] == MASK
    assert masked["identity"]["name"] == {"full": MASK}
    assert revealed["identity"]["email"] == EMAIL.value
    assert revealed["identity"]["name"] == {"full": "Charles Wang"}
    assert masked["demographics"] == revealed["demographics"]


def test_leaves_say_whether_they_are_protected_and_where_they_came_from(pipeline: Pipeline) -> None:
    (profile,) = pipeline.reader().lookup(USER)
    leaves = {leaf.path: leaf for leaf in profile.leaves}
    assert list(leaves) == sorted(leaves)
    assert (leaves["identity.email"].protected, leaves["demographics.age"].protected) == (True, False)
    assert leaves["demographics.age"].register.stamp.source == "segment"
    provenance = profile.canonical(True)["provenance"]
    assert set(provenance) == set(leaves)
    assert "version" not in profile.canonical(True)


def test_an_erased_key_gives_unreadable_and_leaves_the_rest(pipeline: Pipeline) -> None:
    pipeline.key_store.delete([str(USER)])
    reopened = Pipeline(pipeline.folder, pipeline.key_store, pipeline.store, pipeline.index)
    shown = one(reopened, reveal=True)
    assert shown["identity"]["email"] == UNREADABLE
    assert shown["demographics"]["age"] == 37
    # Reading makes no new key, or the erased one could never be distinguished from a lost one.
    assert pipeline.key_store.get([str(USER)]) == {}
    assert one(reopened)["identity"]["email"] == MASK


def test_a_key_of_another_keyring_gives_unreadable(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Pipeline(tmp_path / "other", pipeline.key_store, pipeline.store, pipeline.index)
    assert one(stranger, reveal=True)["identity"]["email"] == UNREADABLE


def test_an_altered_value_gives_unreadable(pipeline: Pipeline) -> None:
    stored = pipeline.store.read([str(USER)])[str(USER)]
    state = FragmentState.decode(stored.state)
    register = state.registers["identity.email"]
    swapped = "A" if register.value[10] != "A" else "B"
    state.registers["identity.email"] = register._replace(
        value=register.value[:10] + swapped + register.value[11:]
    )
    state.encoded = None
    altered = state.encode()
    pipeline.store.write([FragmentWrite(stored.id, stored.version, altered, frozenset())])
    assert one(pipeline, reveal=True)["identity"]["email"] == UNREADABLE


def test_without_reveal_no_key_is_touched(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise KeyProviderError("nobody asked for a key")

    monkeypatch.setattr(pipeline.data_keys, "fetch", refuse)
    assert one(pipeline)["identity"]["email"] == MASK
    assert pipeline.export()


@pytest.mark.parametrize("is_plain_earlier", [True, False])
def test_of_two_names_that_become_one_the_earlier_event_shows(tmp_path: Path, is_plain_earlier: bool) -> None:
    made = Pipeline(tmp_path, snapshot=snapshot(2))
    made.process([order(1)])
    (stored,) = made.store.scan()
    state = FragmentState.decode(stored.state)
    ((hashed, origin),) = state.identifiers.items()
    ordinal = origin.stamp.ordinal + (-1 if is_plain_earlier else 1)
    plain = origin._replace(stamp=origin.stamp._replace(ordinal=ordinal))
    for names in (
        {hashed: origin, "email:p1@example.com": plain},
        {"email:p1@example.com": plain, hashed: origin},
    ):
        state.identifiers.clear()
        state.identifiers.update(names)
        state.encoded = None
        written = state.encode()
        (present,) = made.store.scan()
        made.store.write([FragmentWrite(stored.id, present.version, written, frozenset(names))])
        (profile,) = made.reader().scan()
        assert [str(each) for each in profile.identifiers] == [hashed]
        member = Member(made.store.read([stored.id])[stored.id], FragmentState.decode(written))
        assert made.reader().shown_by(member) == {hashed: min(origin, plain)}


# Search


def ids(profiles: list[Profile]) -> list[str]:
    return [profile.id for profile in profiles]


def test_every_clause_on_plain_attributes(pipeline: Pipeline) -> None:
    for clause in (
        Term("demographics.age", 37),
        Range("demographics.age", 37, 37),
        Prefix("shop.username", "user44"),
        FullText("user4493", "shop.username"),
        FullText("user4493"),
    ):
        assert str(USER) in ids(found(pipeline, clause)), clause
    assert str(USER) not in ids(found(pipeline, Range("demographics.age", 38)))
    everybody = found(pipeline)
    assert len(everybody) == len(list(pipeline.reader().scan())) == pipeline.reader().count(Query())


def test_a_searchable_attribute_is_found_by_its_value_in_any_case(pipeline: Pipeline) -> None:
    for value in (EMAIL.value, f"  {EMAIL.value.upper()} "):
        assert ids(found(pipeline, Term("identity.email", value))) == [str(USER)]
    (profile,) = found(pipeline, Term("identity.email", EMAIL.value))
    assert profile.attributes()["identity"]["email"] == MASK
    (profile,) = found(pipeline, Term("identity.email", EMAIL.value), reveal=True)
    assert profile.attributes()["identity"]["email"] == EMAIL.value
    assert pipeline.reader().count(Query((Term("identity.email", EMAIL.value),))) == 1
    assert found(pipeline, Term("identity.email", "nobody@example.com")) == []


@pytest.mark.parametrize(
    "clause",
    [
        Prefix("identity.email", "c"),
        Range("identity.email", "a", "z"),
        FullText("charles", "identity.email"),
        Term("identity.name.full", "Charles Wang"),
        Prefix("identity.name.full", "C"),
        FullText("charles", "identity.name.full"),
        Range("address.shipping.line1", "1"),
        # Below and above what is protected.
        Term("identity.name.unheard.of", 1),
        Term("identity", "x"),
    ],
)
def test_what_a_protected_attribute_cannot_answer_is_refused(clause: Clause, pipeline: Pipeline) -> None:
    for ask in (pipeline.reader().search, pipeline.reader().count):
        with pytest.raises(QueryError) as caught:
            ask(Query((clause,)))
        assert clause.path is not None
        assert clause.path in str(caught.value)
        assert "charles" not in str(caught.value).lower()


def test_protected_words_are_not_in_the_full_text(pipeline: Pipeline) -> None:
    for word in ("charles", "wang", EMAIL.value):
        assert found(pipeline, FullText(word)) == [], word


@pytest.mark.parametrize(
    ("declared_as", "stored", "asked"),
    [
        ("integer", 42, 42),
        ("integer", 42, 42.0),
        ("integer", "42", 42),
        ("number", "42.50", 42.5),
        ("string", "42", "42"),
        ("string", 42, "42"),
        ("boolean", True, True),
        ("boolean", "true", True),
        ("string", "x", " X "),
    ],
)
def test_a_searchable_value_is_found_by_its_declared_type_however_it_was_sent(
    declared_as: str, stored: Any, asked: Any, tmp_path: Path
) -> None:
    same = [{"operation": "shift", "spec": {"*": "&"}}]
    flat = spec(
        "orders",
        operations=same,
        specification_type="jolt",
        id="i",
        ordinal="o",
        identifiers=[{"type": "user_id", "path": "u", "primary": True}],
    )
    declared = [attribute("secret", declared_as, encryption="searchable")]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[flat], declared=declared))
    pipeline.process([raw({"i": "1", "o": 1, "u": "1", "secret": stored})])
    assert ids(found(pipeline, Term("secret", asked))) == ["user_id:1"]
    assert found(pipeline, Term("secret", "other")) == []


@pytest.mark.parametrize("encryption", ["none", "searchable", "protected"])
def test_a_birthday_is_found_by_its_anniversary(encryption: str, tmp_path: Path) -> None:
    flat = spec(
        "orders",
        operations=[{"operation": "shift", "spec": {"*": "&"}}],
        specification_type="jolt",
        id="u",
        ordinal="o",
        identifiers=[{"type": "user_id", "path": "u", "primary": True}],
    )
    declared = [attribute("birthday", "string", encryption=encryption, time="date")]
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[flat], declared=declared))
    days = ("1990-02-28", "2004-02-29", "1990-03-01", "no day")
    pipeline.process([raw({"u": str(n), "o": 1, "birthday": day}, n) for n, day in enumerate(days, 1)])
    reader = pipeline.reader()
    reader.now_ms = lambda: 1_772_280_000_000  # 2026-02-28
    query = parse_query(["birthday=anniversary"], lambda _: None, reader.time_of)
    if encryption == "protected":
        with pytest.raises(QueryError, match="birthday"):
            reader.count(query)
        return
    assert sorted(ids(reader.search(query, 10).profiles)) == ["user_id:1", "user_id:2"]
    assert reader.count(parse_query(["birthday=anniversary+1d"], lambda _: None, reader.time_of)) == 1


# Values that were stored before policy protected them


def later_protected(pipeline: Pipeline, *declared: AttributeMetadata) -> Pipeline:
    known = [each for each in pipeline.snapshot.attributes if each.path not in {a.path for a in declared}]
    return Pipeline(
        pipeline.folder,
        pipeline.key_store,
        pipeline.store,
        pipeline.index,
        snapshot=snapshot(2, declared=[*known, *declared]),
    )


def test_what_was_stored_plain_is_masked_once_policy_protects_it(pipeline: Pipeline) -> None:
    after = later_protected(pipeline, attribute("demographics.age", "integer", encryption="protected"))
    assert one(after)["demographics"]["age"] == MASK
    (profile,) = after.reader().lookup(USER, reveal=True)
    (leaf,) = [leaf for leaf in profile.leaves if leaf.path == "demographics.age"]
    assert (leaf.value, leaf.protected) == (37, True)
    with pytest.raises(QueryError):
        found(after, Range("demographics.age", 0))


def test_a_person_is_still_found_by_a_name_stored_before_its_type_was_protected(tmp_path: Path) -> None:
    before = Pipeline(tmp_path, snapshot=snapshot(declared=[], defaults=UNDETECTED))
    before.process([order(1, 1)])
    after = Pipeline(tmp_path, before.key_store, before.store, before.index, snapshot=snapshot(2))
    (profile,) = after.reader().lookup(Identifier("email", "p1@example.com"))
    assert profile.id == str(after.blind_index.identifier(Identifier("email", "p1@example.com"))), (
        "hidden now"
    )
    after.process([order(1, 2)])
    reader = after.reader()
    found = reader.lookup(Identifier("email", "p1@example.com"))
    assert [each.id for each in found] == [profile.id], "one person, also before it is sealed"
    assert reader.stale == 1
    sealed(after)
    reader = after.reader()
    assert [each.id for each in reader.scan()] == [profile.id]
    assert reader.stale == 0


# Export


def test_profiles_come_sorted_whatever_the_page(pipeline: Pipeline) -> None:
    scanned = [profile.id for profile in pipeline.reader().scan()]
    assert scanned == sorted(scanned)
    assert len(scanned) == len(set(scanned)) == len(persons_of(pipeline.store))


def test_a_plain_value_that_is_written_like_a_mask_is_reported_from_one_by_its_leaf(tmp_path: Path) -> None:
    same = [{"operation": "jmespath", "spec": {"a": "a", "_event": "_event"}}]
    flat = spec(
        "orders",
        operations=same,
        specification_type="chain",
        identifiers=[{"type": "user_id", "path": "_event.id", "primary": True}],
    )
    pipeline = Pipeline(tmp_path, snapshot=snapshot(specs=[flat], declared=[]))
    pipeline.process([raw({"a": {"$protected": True}, "_event": {"id": "1", "ordinal": 1}})])
    (profile,) = pipeline.reader().scan()
    # An object is never a leaf, so the leaf lies below.
    assert [leaf.path for leaf in profile.leaves] == ["a.$protected"]
    assert not profile.leaves[0].protected
    assert canonical.encode(profile.attributes()) == b'{"a":{"$protected":true}}'
