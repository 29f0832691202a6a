"""Parse an SQL condition to a checked tree of expressions, or say why it is refused.

The text is read once, from left to right; each part is checked as soon as it is read, so that an
error names it. What binds tighter is read by a method further down: OR, AND, comparisons, tests
such as IN and IS NULL, ``||``, sums, products, signs, and what follows a value directly. Only what
is read here is accepted. `conditions` imports this module when there is a condition to parse: most
processes never need it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dormouse.errors import InvalidRequestError, did_you_mean
from dormouse.schema.schema import ASKED, Schema
from dormouse.schema.types import ListType, MapType, Primitive, StructType, show_type
from dormouse.sql import calls, operands
from dormouse.sql.conditions import (
    MAX_BRACKETS,
    MAX_CONDITION_CHARACTERS,
    MAX_CONDITION_DEPTH,
    MAX_PATH,
    MAX_PATTERN,
    Call,
    Column,
    Expression,
    Interval,
    Literal,
    check_characters,
    leaf_sql,
    parse_interval,
    render,
    truth,
)
from dormouse.sql.conditions import depth as depth_of

_TOKEN = re.compile(
    r"""(?:\s|--[^\n]*|/\*(?:(?!/\*|\*/).)*\*/)*(?:
    (?P<hex>[xX]'[^']*')
    |(?P<word>[^\W\d]\w*)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w*)
    |"(?P<name>(?:[^"]|"")+)"
    |'(?P<text>(?:[^']|'')*)'
    |(?P<mark><=|>=|<>|!=|==|::|\|\||\S)
    |(?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
"""Space and comments, and the token after them; a comment within a comment is none."""
_SHOWN = 60
_SAME = {"==": "=", "!=": "<>"}
_TYPED = {
    "DATE": Primitive.DATE,
    "TIME": Primitive.TIME,
    "TIMESTAMP": Primitive.TIMESTAMP,
    "TIMESTAMPTZ": Primitive.TIMESTAMP,
    "UUID": Primitive.UUID,
}
"""The words before literals that are written as texts."""
_LONGER_TYPES = ("DOUBLE PRECISION", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITHOUT TIME ZONE")
_NOW = {
    "now": Primitive.TIMESTAMP_NTZ,
    "current_timestamp": Primitive.TIMESTAMP_NTZ,
    "current_date": Primitive.DATE,
}
_ALIASES = {"char_length": "length", "character_length": "length", "substring": "substr"}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}
_NO_COLUMNS = frozenset(
    (
        *("ALL", "AND", "ANY", "BETWEEN", "CASE", "CAST", "DISTINCT", "ELSE", "END", "ESCAPE"),
        *("EXISTS", "FROM", "ILIKE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "SELECT", "SIMILAR"),
        *("SOME", "THEN", "TRY_CAST", "VALUES", "WHEN", "WITH"),
    )
)
"""Words that are columns only in quotes."""
_ALLOWED = (
    "allowed are AND, OR, NOT, = <> < <= > >=, IS [NOT] DISTINCT FROM, IS [NOT] NULL, TRUE or "
    "FALSE, IN, BETWEEN, LIKE, ILIKE, + - * / % ||, CASE, [TRY_]CAST, INTERVAL, "
    "current_timestamp, " + calls.NAMES
)


class _Token(NamedTuple):
    """A part of a text: `said` is what is in its quotes, or a word in capitals."""

    kind: str
    said: str
    start: int
    end: int


class _PlacedError(InvalidRequestError):
    """An error that says where in the text it is."""


def parse(text: str, schema: Schema, now_ms: int | None, *, of_rows: bool = False) -> Expression:
    """Return the checked tree of a condition; `now_ms` is the present time, if it may have one;
    `of_rows` says that it may use row tags.
    Raises InvalidRequestError: it is not a condition; the message says where and why.
    """
    check_characters(text, "condition", MAX_CONDITION_CHARACTERS)
    condition = _Parser(text, schema, now_ms, of_rows=of_rows).whole()
    # requests store the normal form, so it must be accepted as well
    check_characters(render(condition, leaf_sql), "condition", MAX_CONDITION_CHARACTERS)
    return condition


def _tokens(text: str) -> list[_Token]:
    tokens, at, kind = [], 0, ""
    while kind != "end":
        match = _TOKEN.match(text, at)
        if match is None:  # \Z matches at the latest
            break
        kind, at = str(match.lastgroup), match.end()
        start, said = match.start(kind), match[kind]
        if kind in ("name", "text"):
            quote = text[start - 1]
            start, said = start - 1, said.replace(2 * quote, quote)
        tokens.append(_Token(kind, said.upper() if kind == "word" else said, start, at))
    return tokens


def _negated(test: Expression, negate: bool) -> Expression:
    return truth("NOT", test) if negate else test


class _Parser:
    """A text that is read from its first token to its last."""

    def __init__(self, text: str, schema: Schema, now_ms: int | None, *, of_rows: bool) -> None:
        self._text, self._schema, self._now_ms = text, schema, now_ms
        self._of_rows = of_rows
        self._tokens = _tokens(text)
        self._at = self._nested = 0

    def whole(self) -> Expression:
        """Return the tree of all of the text."""
        condition = self._either()
        if self._next.kind != "end":
            raise self._unexpected()
        return self._made(0, _truth, condition)

    # tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _is(self, *said: str) -> bool:
        """Return whether these words, in capitals, and marks come next."""
        coming = self._tokens[self._at : self._at + len(said)]
        return [(t.kind in ("word", "mark"), t.said) for t in coming] == [(True, s) for s in said]

    def _take(self, *said: str) -> bool:
        """Take these words and marks, if they come next; return whether they did."""
        is_next = self._is(*said)
        self._at += len(said) if is_next else 0
        return is_next

    def _one_of(self, *said: str) -> str:
        """Take one of these words or marks, and return it; empty if none comes next."""
        return next((each for each in said if self._take(each)), "")

    def _expect(self, *said: str) -> None:
        for each in said:
            if not self._take(each):
                raise self._unexpected(f"; {each} is expected there")

    def _taken(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    # errors

    def _unexpected(self, more: str = "") -> InvalidRequestError:
        token = self._next
        if token.kind == "end":
            return self._placed(InvalidRequestError(f"the condition ends too early{more}"), token)
        excerpt = self._text[token.start : token.end][:_SHOWN]
        problem = f"{excerpt} is not allowed there in a condition{more}"
        if excerpt in ("'", '"'):
            problem = f"the quote {excerpt} is not closed"
        return self._placed(InvalidRequestError(problem, hint=_ALLOWED), token)

    def _placed(self, error: InvalidRequestError, token: _Token) -> InvalidRequestError:
        """Return an error with the line and the column, from 1, at which a token begins."""
        before = self._text[: token.start]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        return _PlacedError(f"line {line}, column {column}: {error}", hint=error.hint)

    def _made(self, start: int, make: Callable[..., Expression], *arguments: Any) -> Expression:
        """Return what is made of the tokens from `start` on.
        Raises InvalidRequestError: something is wrong with them; the message says where they are.
        """
        try:
            expression = make(*arguments)
            if depth_of(expression) > MAX_CONDITION_DEPTH:
                raise self._too_deep()
        except _PlacedError:
            raise
        except InvalidRequestError as error:
            first, last = self._tokens[start], self._tokens[self._at - 1]
            excerpt = " ".join(self._text[first.start : last.end].split())
            excerpt = excerpt if len(excerpt) <= _SHOWN else f"{excerpt[: _SHOWN - 1]}…"
            is_said_of_it = str(error).startswith("it ")
            text = f"{excerpt} {str(error)[3:]}" if is_said_of_it else f"{excerpt}: {error}"
            problem = InvalidRequestError(text, hint=error.hint)
            raise self._placed(problem, first) from error
        return expression

    def _too_deep(self) -> InvalidRequestError:
        return _PlacedError(f"the condition is nested deeper than {MAX_CONDITION_DEPTH}")

    # from what binds loosely to what binds tightly

    def _condition(self, parse: Callable[[], Expression]) -> Expression:
        """Return a part that must be true or false."""
        start = self._at
        return self._made(start, _truth, parse())

    def _either(self) -> Expression:
        return self._chain("OR", lambda: self._chain("AND", self._equal))

    def _chain(self, word: str, parse: Callable[[], Expression]) -> Expression:
        """Return the terms of a chain as the arguments of one call, so that a long one is not
        deep; the only term as it is.
        """
        start, terms = self._at, [parse()]
        while self._is(word):
            if len(terms) == 1:
                self._made(start, _truth, terms[0])
            self._at += 1
            terms.append(self._condition(parse))
        return terms[0] if len(terms) == 1 else self._made(start, _junction, word, terms)

    def _equal(self) -> Expression:
        start, left = self._at, self._compared_by_size()
        while True:
            if mark := self._one_of("=", "==", "<>", "!="):
                right = self._compared_by_size()
                left = self._made(start, _comparison, _SAME.get(mark, mark), [left, right])
            elif self._take("IS"):
                left = self._is_test(start, left)
            elif word := self._one_of("ISNULL", "NOTNULL"):
                left = _negated(truth("IS NULL", left), word == "NOTNULL")
            else:
                return left

    def _compared_by_size(self) -> Expression:
        return self._calculation(("<", "<=", ">", ">="), self._test, _comparison)

    def _test(self) -> Expression:
        """Return a value, or a test of it by IN, BETWEEN or a pattern."""
        start, value = self._at, self._joined()
        while True:
            at, negate = self._at, self._take("NOT")
            if self._take("BETWEEN"):
                low = self._joined()
                self._expect("AND")
                test = self._made(start, _between, value, low, self._joined())
            elif self._take("IN"):
                self._expect("(")
                if self._is(")") or self._is("SELECT"):
                    raise self._unexpected("; IN needs a list of values")
                test = self._made(start, _in, value, self._list(")"))
            elif word := self._one_of("LIKE", "ILIKE"):
                test = self._made(start, _pattern, word, value, self._joined())
            else:
                self._at = at
                return value
            value = _negated(test, negate)

    def _is_test(self, start: int, value: Expression) -> Expression:
        negate = self._take("NOT")
        if self._take("DISTINCT", "FROM"):
            op = "IS NOT DISTINCT FROM" if negate else "IS DISTINCT FROM"
            return self._made(start, _comparison, op, [value, self._joined()])
        if self._one_of("NULL", "UNKNOWN"):
            return _negated(truth("IS NULL", value), negate)
        word = self._one_of("TRUE", "FALSE")
        if not word:
            raise self._unexpected("; IS is followed by NULL, TRUE or FALSE")
        return _negated(truth(f"IS {word}", self._made(start, _truth, value)), negate)

    def _calculation(
        self,
        marks: Sequence[str],
        parse: Callable[[], Expression],
        make: Callable[[str, list[Expression]], Expression],
    ) -> Expression:
        """Return the calculations by some marks, one after the other from the left."""
        start, left = self._at, parse()
        while mark := self._one_of(*marks):
            left = self._made(start, make, mark, [left, parse()])
        return left

    def _joined(self) -> Expression:
        return self._calculation(["||"], self._sum, lambda mark, parts: calls.concat(parts, mark))

    def _sum(self) -> Expression:
        start, by = self._at, self._interval()
        if by is not None:
            self._expect("+")
        left = self._product()
        left = left if by is None else self._made(start, calls.moved, left, by)
        while mark := self._one_of("+", "-"):
            by = self._interval()
            if by is None:
                left = self._made(start, calls.arithmetic, mark, [left, self._product()])
            else:
                left = self._made(start, calls.moved, left, by if mark == "+" else by.negated())
        return left

    def _interval(self) -> Interval | None:
        """Take an interval, if one comes next."""
        start, tokens = self._at, self._tokens[self._at + 1 :][:1]
        if not self._is("INTERVAL") or tokens[0].kind not in ("text", "number"):
            return None
        self._at += 2
        is_whole = tokens[0].kind == "text" and not tokens[0].said.strip().isdigit()
        unit = "" if is_whole or self._next.kind != "word" else self._taken().said.lower()
        try:
            return parse_interval(f"{tokens[0].said} {unit}")
        except InvalidRequestError as error:
            raise self._placed(error, self._tokens[start]) from error

    def _product(self) -> Expression:
        return self._calculation("*/%", self._signed, calls.arithmetic)

    def _signed(self) -> Expression:
        start = self._at
        if self._take("NOT"):
            return truth("NOT", self._nest(lambda: self._condition(self._equal)))
        if self._take("+"):
            return self._nest(self._signed)
        if not self._take("-"):
            return self._with_parts()
        following = self._tokens[self._at : self._at + 2]
        if following[0].kind == "number" and following[1].said not in ("::", "[", "."):
            return self._made(start, operands.number, f"-{self._taken().said}")
        inner = self._nest(self._signed)
        zero = self._made(start, operands.coerce_literal, Literal(0, Primitive.LONG), inner.type)
        return self._made(start, calls.arithmetic, "-", [zero, inner])

    def _nest(self, parse: Callable[[], Expression]) -> Expression:
        """Return what is read in brackets, or by a method that this one is called by."""
        self._nested += 1
        if self._nested > MAX_BRACKETS:
            raise self._too_deep()
        expression = parse()
        self._nested -= 1
        return expression

    def _with_parts(self) -> Expression:
        """Return a value, or the part of it, or what it is cast to, as the marks after it say."""
        start, first = self._at, self._next
        value = self._value()
        while True:
            if self._take("::"):
                is_text = first.kind == "text" and self._at == start + 2
                value = self._cast(start, value, is_text=is_text, may_fail=False)
            elif self._take("["):
                inside = self._nest(self._sum)
                self._expect("]")
                value = self._made(start, _part, value, inside)
            elif self._is(".") and first.kind in ("name", "word"):
                self._at += 1
                value = self._made(start, _member, value, self._name())
            else:
                return value

    def _name(self) -> str:
        if self._next.kind not in ("name", "word"):
            raise self._unexpected()
        token = self._taken()
        return token.said if token.kind == "name" else self._text[token.start : token.end]

    def _list(self, end: str) -> list[Expression]:
        """Return the values up to a bracket that closes, which is taken."""
        items: list[Expression] = []
        while not self._take(end):
            if items:
                self._expect(",")
            items.append(self._nest(self._either))
        return items

    def _value(self) -> Expression:
        start, token = self._at, self._next
        match token.kind:
            case "number":
                self._at += 1
                return self._made(start, operands.number, token.said)
            case "text":
                self._at += 1
                return Literal(token.said, Primitive.STRING)
            case "hex":
                self._at += 1
                return self._made(start, _bytes, token.said)
            case "name":
                return self._column()
            case "word":
                return self._word(start, token.said)
        if not self._take("("):
            raise self._unexpected()
        value = self._nest(self._either)
        self._expect(")")
        return value

    def _word(self, start: int, word: str) -> Expression:
        """Return what begins with a word: a literal, a function, or a column."""
        after = self._tokens[self._at + 1]
        if word in ("TRUE", "FALSE"):
            self._at += 1
            return Literal(word == "TRUE", Primitive.BOOLEAN)
        if word == "CASE":
            return self._case(start)
        if self._take("TIMESTAMP", "WITH", "TIME", "ZONE") or word in _TYPED:
            self._at += self._at == start
            if self._next.kind == "text":
                return self._made(start, operands.text_as_time, self._taken().said, _TYPED[word])
            self._at = start
        name = word.lower()
        if name in _NOW and (after.said == "(" or name != "now"):
            self._at += 1
            if self._take("("):
                self._expect(")")
            return self._made(start, calls.now, _NOW[name], self._now_ms)
        if (
            after.kind == "mark"
            and after.said == "("
            and (word not in _NO_COLUMNS or word in ("CAST", "TRY_CAST"))
        ):
            self._at += 2
            return self._function(start, name)
        if word in _NO_COLUMNS or after.kind == "text":
            raise self._unexpected()
        return self._column()

    def _column(self) -> Expression:
        start, names = self._at, [self._name()]
        schema = self._schema.with_values(*ASKED) if self._of_rows else self._schema
        columns = {field.name for field in schema.fields}
        if names[0] not in columns and self._is(".") and self._tokens[self._at + 1].said:
            self._at += 1
            names.append(self._name())
        return self._made(start, named_column, names, schema)

    def _function(self, start: int, name: str) -> Expression:
        if name in ("cast", "try_cast"):
            is_text = self._next.kind == "text" and self._tokens[self._at + 1].said == "AS"
            inner = self._nest(self._either)
            self._expect("AS")
            may_fail = name == "try_cast"
            return self._cast(start, inner, is_text=is_text, may_fail=may_fail, end=")")
        if name == "extract":
            part = self._name().upper()
            self._expect("FROM")
            time = self._nest(self._either)
            self._expect(")")
            return self._made(start, calls.extract, part, time)
        side = next((s for s in _TRIMS if name == "trim" and self._take(s, "FROM")), "")
        arguments = self._list(")")
        if name == "tag":
            return self._made(start, calls.tag, arguments, self._of_rows)
        function = _TRIMS.get(side) or _ALIASES.get(name, name)
        return self._made(start, calls.call, function, arguments)

    def _cast(
        self, start: int, inner: Expression, *, is_text: bool, may_fail: bool, end: str = ""
    ) -> Expression:
        words = next((each for each in _LONGER_TYPES if self._take(*each.split())), "")
        words = words or self._name().upper()
        sizes: list[str] = []
        if self._take("("):
            while not self._take(")"):
                if self._next.kind == "end":
                    raise self._unexpected()
                sizes += [each for each in (self._taken().said,) if each != ","]
        if self._is("["):
            raise self._unexpected("; conditions cast to no list")
        if end:
            self._expect(end)

        def cast() -> Expression:
            kind = calls.type_named(words, sizes)
            return calls.cast(inner, kind, is_text=is_text, may_fail=may_fail)

        return self._made(start, cast)

    def _case(self, start: int) -> Expression:
        self._expect("CASE")
        whole = None if self._is("WHEN") else self._nest(self._either)
        tests, results = [], []
        while self._take("WHEN"):
            at = self._at
            test = self._nest(self._either)
            if whole is None:
                self._made(at, _truth, test)
            else:
                test = self._made(start, _comparison, "=", [whole, test])
            tests.append(test)
            self._expect("THEN")
            results.append(self._nest(self._either))
        if not tests:
            raise self._unexpected("; WHEN is expected there")
        if self._take("ELSE") and not self._take("NULL"):
            results.append(self._nest(self._either))
        self._expect("END")
        return self._made(start, calls.case, tests, results)


def _truth(value: Expression) -> Expression:
    """Return what must be true or false."""
    if value.type is not Primitive.BOOLEAN:
        raise InvalidRequestError(
            f"it is {show_type(value.type)}; a condition is needed there",
            hint="compare it with something",
        )
    return value


def _comparison(op: str, sides: Sequence[Expression]) -> Expression:
    return truth(op, *operands.compared(sides))


def _junction(word: str, terms: Sequence[Expression]) -> Expression:
    calls.check_count(terms)
    return truth(word, *terms)


def _between(operand: Expression, low: Expression, high: Expression) -> Expression:
    value, least, most = operands.compared([operand, low, high])
    return truth("AND", truth(">=", value, least), truth("<=", value, most))


def _in(operand: Expression, values: Sequence[Expression]) -> Expression:
    calls.check_count(values)
    members = operands.compared([operand, *values])
    if not all(isinstance(value, Literal) for value in members[1:]):
        raise InvalidRequestError("the list of IN may hold only values")
    return truth("IN", *members)


def _pattern(word: str, value: Expression, pattern: Expression) -> Expression:
    value = operands.text_of(value)
    operands.check_types([value, pattern], (Primitive.STRING, Primitive.STRING))
    if not isinstance(pattern, Literal):
        raise InvalidRequestError("the pattern must be a text in quotes")
    length = len(str(pattern.value))
    if length > MAX_PATTERN:
        raise InvalidRequestError(
            f"the pattern has {length:,} characters; at most {MAX_PATTERN:,} are allowed",
            hint="starts_with, ends_with and contains take texts of any length",
        )
    return truth(word, value, pattern)


def _bytes(digits: str) -> Literal:
    try:
        return Literal(bytes.fromhex(digits[2:-1]), Primitive.BYTES)
    except ValueError as error:
        raise InvalidRequestError("it is not bytes: write two hex digits for each byte") from error


# Columns of a condition, and the parts of nested ones: members of structs, elements of lists,
# values of maps.


def named_column(names: Sequence[str], schema: Schema) -> Column:
    """Return the column that a name means. A second name is what follows a first one that is no
    column.
    Raises InvalidRequestError: there is no such column.
    """
    first, *others = names
    columns = [field.name for field in schema.fields]
    if others and others[0] in columns:
        raise InvalidRequestError("a column is named on its own")
    field = schema.field_named(first)
    if field.encrypted is not None:
        raise InvalidRequestError(
            f"the values of column {field.name!r} are encrypted, so no condition can read them",
            hint="find rows by other columns; a SELECT can compare it, reading all rows",
        )
    return Column(field.name, field.type)


def _member(whole: Expression, name: str) -> Expression:
    """Return the member of a struct.
    Raises InvalidRequestError: it is no struct, or has no such member.
    """
    if whole.type is Primitive.DYNAMIC:
        return _within_document(whole, Literal(name, Primitive.STRING))
    if not isinstance(whole.type, StructType):
        raise InvalidRequestError(
            f"{show_type(whole.type)} has no members",
            hint="a value of a map is tags['colour'], an element of a list stops[1]",
        )
    members = {member.name: member.type for member in whole.type.members}
    if name not in members:
        hint = did_you_mean(name, members, "members: " + ", ".join(members))
        raise InvalidRequestError(f"there is no member {name!r}", hint=hint)
    return Call("FIELD", (whole, Literal(name, Primitive.STRING)), members[name])


def _within_document(whole: Expression, step: Literal) -> Expression:
    """Return the part of a document, or of a part of one, to which a step leads."""
    is_place = step.type is Primitive.LONG and isinstance(step.value, int) and step.value >= 0
    if step.type is not Primitive.STRING and not is_place:
        raise InvalidRequestError(
            "what is in a document is found by names and, in arrays, by places from 0",
            hint="write payload.user.id, payload['a name'] or payload.items[0]",
        )
    steps = whole.arguments if isinstance(whole, Call) else (whole,)
    if len(steps) > MAX_PATH:
        raise InvalidRequestError(f"a path has at most {MAX_PATH} steps")
    return Call("PATH", (*steps, step), Primitive.DYNAMIC)


def _part(whole: Expression, inside: Expression) -> Expression:
    """Return what is in brackets after a value: a member of a struct, an element of a list, counted
    from 1 or, below zero, from the end, or the value of a key of a map.
    Raises InvalidRequestError: the value has no such parts.
    """
    if not isinstance(inside, Literal):
        raise InvalidRequestError("in brackets is a text in quotes or a number")
    kind, value = whole.type, inside.value
    if kind is Primitive.DYNAMIC:
        return _within_document(whole, inside)
    if isinstance(kind, StructType) and isinstance(value, str):
        return _member(whole, value)
    if isinstance(kind, ListType) and inside.type is Primitive.LONG:
        return Call("ELEMENT", (whole, inside), kind.element)
    if isinstance(kind, MapType) and kind.key is Primitive.STRING and isinstance(value, str):
        return Call("VALUE", (whole, inside), kind.value)
    if isinstance(kind, MapType) and kind.key is not Primitive.STRING:
        raise InvalidRequestError("only values of maps whose keys are text can be taken")
    raise InvalidRequestError(
        f"{show_type(kind)} has no such part",
        hint="write place['city'], tags['colour'] or stops[1]",
    )
