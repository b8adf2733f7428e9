"""A JSON text as the tokens that Spark's ``from_json`` sees, which is what Jackson's parser for characters makes of it.

What matters is not only what a good document means. Where a value is bad, ``from_json`` keeps the fields around it: it
asks the parser for the next token, from the place and in the state that the error left behind. So this walk stops where
that one stops, leaves the same state, and reads the value of an object's member together with its name.
"""

from __future__ import annotations

import binascii
import re
import string
import unicodedata
from typing import Final, NoReturn

from kadence.columns.isolation import BadRecordError
from kadence_spark.decode.options import Syntax

__all__ = [
    "ARRAY",
    "END_ARRAY",
    "END_OBJECT",
    "FALSE",
    "FLOAT",
    "INT",
    "NAME",
    "NULL",
    "OBJECT",
    "STRING",
    "TRUE",
    "Tokens",
    "joined",
    "paired",
]

NAME: Final = "a name"
STRING: Final = "a text"
INT: Final = "a whole number"
FLOAT: Final = "a number"
TRUE: Final = "true"
FALSE: Final = "false"
NULL: Final = "null"
OBJECT: Final = "an object"
END_OBJECT: Final = "the end of an object"
ARRAY: Final = "a list"
END_ARRAY: Final = "the end of a list"

_MOST_NESTED: Final = 1000
_LONGEST_NUMBER: Final = 1000
_LONGEST_NAME: Final = 50_000
_LONGEST_WORD: Final = 256
"""Jackson's limits: a deeper, a longer one is refused. So much of a wrong word is passed over."""

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_QUOTED: Final = re.compile(r'([^"\\\x00-\x1f]*)"')
_PLAIN: Final = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]*") for quote in "\"'"}
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DIGITS: Final = re.compile(r"[0-9]*")
_ESCAPES: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\"}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_BASE64: Final = re.compile(r'((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)"')
_PADDING: Final = 64
_NO_BITS: Final = -1
_SIX_BITS: Final = {
    letter: bits
    for bits, letter in enumerate(string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/=")
}
_PUNCTUATION: Final = frozenset("!\"%&'()*+,-./:;<=>?@[\\]^`{|}~#\t\n\v\f\r ")


class _Scope:
    """An object or a list that is open, or the document. count: of what it has so far, from -1 on."""

    __slots__ = ("count", "kind", "name")

    def __init__(self, kind: str | None) -> None:
        self.kind = kind
        self.count = -1
        self.name: str | None = None


class Tokens:
    """The walk over one text.

    Attributes:
        token: the kind of the current one; None before the first and behind the last.
        number: how a number is written.
        at: where the walk stands.
    """

    __slots__ = ("_following", "_is_open", "_scopes", "_syntax", "_text", "at", "number", "text", "token")

    def __init__(self, text: str, syntax: Syntax) -> None:
        self.text = text
        self.at = 0
        self.token: str | None = None
        self.number = ""
        self._syntax = syntax
        self._text = ""
        self._following: str | None = None
        self._is_open = False
        self._scopes = [_Scope(None)]

    @property
    def name(self) -> str | None:
        """The member's name that the current token belongs to; None in lists."""
        scopes = self._scopes
        begins = self.token in (OBJECT, ARRAY) and len(scopes) > 1
        return scopes[-2 if begins else -1].name

    def next(self) -> str | None:
        """Go to the next token.

        Raises:
            BadRecordError: there is no valid one.
        """
        if self.token is NAME:
            self.token, self._following = self._following, None
            if self.token is OBJECT or self.token is ARRAY:
                self._begin(self.token)
            return self.token
        if self._is_open:
            self._is_open = False
            self._string('"', keep=False)
        scope = self._scopes[-1]
        letter = self._letter()
        if letter == "":
            if scope.kind is not None:
                self._ended()
            self.token = None
            return None
        if letter in {"]", "}"}:
            kind, token = (ARRAY, END_ARRAY) if letter == "]" else (OBJECT, END_OBJECT)
            if scope.kind is not kind:
                self._unexpected(letter)
            self._scopes.pop()
            self.token = token
            return token
        scope.count += 1
        if scope.count > 0 and scope.kind is not None:
            if letter != ",":
                self._unexpected(letter)
            letter = self._letter() or self._ended()
        if scope.kind is not OBJECT:
            token = self._value(letter)
            if token is OBJECT or token is ARRAY:
                self._begin(token)
            self.token = token
            return token
        scope.name = self._name(letter)
        self.token = NAME
        if (self._letter() or self._ended()) != ":":
            self._unexpected(self.text[self.at - 1])
        self._following = self._value(self._letter() or self._ended())
        return NAME

    @property
    def has_non_numeric(self) -> bool:
        """Whether NaN and the infinite are numbers."""
        return self._syntax.non_numeric

    def skip_children(self) -> None:
        """From the beginning of an object or a list to its end; elsewhere nothing.

        Raises:
            BadRecordError: what is skipped is not valid.
        """
        if self.token is not OBJECT and self.token is not ARRAY:
            return
        depth = 1
        while depth:
            token = self.next()
            if token is None:
                self._ended()
            if token is OBJECT or token is ARRAY:
                depth += 1
            elif token is END_OBJECT or token is END_ARRAY:
                depth -= 1

    def string(self) -> str:
        """The current token's text.

        Raises:
            BadRecordError: it is not valid, or never ends.
        """
        if self._is_open:
            self._is_open = False
            found = _QUOTED.match(self.text, self.at)
            if found is not None:
                self._text = found[1]
                self.at = found.end()
            else:
                self._text = self._string('"', keep=True)
        return self._text

    def binary(self) -> bytes:
        """What the current token's text is base64 of. A wrong text is left where it goes wrong, still open.

        Raises:
            BadRecordError: it is no base64 with padding, or no valid text.
        """
        if self._is_open:
            found = _BASE64.match(self.text, self.at)
            if found is not None:
                self._is_open = False
                self.at = found.end()
                return binascii.a2b_base64(found[1])
            made = self._from_base64()
            self._is_open = False
            return made
        if '"' in self._text or "\\" in self._text:
            self.fail("no base64")
        alone = Tokens(self._text + '"', self._syntax)
        return alone._from_base64()

    def _from_base64(self) -> bytes:
        made = bytearray()
        while True:
            letter = self._taken()
            while letter <= " ":
                letter = self._taken()
            if letter == '"':
                return bytes(made)
            first = self._six_bits(letter, 0)
            if first < 0:
                continue
            data = first << 6 | self._six_bits(self._taken(), 1)
            for place in (2, 3):
                letter = self._taken()
                if letter == '"':
                    self.at -= 1
                    self.fail("base64 without its padding")
                bits = self._six_bits(letter, place)
                if bits == _PADDING:
                    break
                data = data << 6 | bits
            else:
                made += data.to_bytes(3, "big")
                continue
            if place == 3:
                made += (data >> 2).to_bytes(2, "big")
            elif self._six_bits(self._taken(), 3) == _PADDING:
                made += (data >> 4).to_bytes(1, "big")
            else:
                self.fail("base64 without its padding")

    def _six_bits(self, letter: str, place: int) -> int:
        """What a letter stands for at its place of four; a blank that is escaped is passed over before the first."""
        bits = _SIX_BITS.get(letter, _NO_BITS)
        if bits == _NO_BITS and letter == "\\":
            letter = self._escaped()
            if letter <= " " and place == 0:
                return _NO_BITS
            bits = _SIX_BITS.get(letter, _NO_BITS)
        if bits == _NO_BITS or (bits == _PADDING and place < 2):
            self.fail("no base64")
        return bits

    def _taken(self) -> str:
        letter = self.text[self.at : self.at + 1] or self._ended()
        self.at += 1
        return letter

    # ------------------------------------------------------------ parts of a token

    def _begin(self, kind: str) -> None:
        self._scopes.append(_Scope(kind))
        if len(self._scopes) - 1 > _MOST_NESTED:
            self.fail("nested too deeply")

    def _letter(self) -> str:
        """The next letter that is no blank, passed; nothing at the end."""
        while True:
            self.at = _BLANKS.match(self.text, self.at).end()  # type: ignore[union-attr]
            letter = self.text[self.at : self.at + 1]
            self.at += len(letter)
            if letter and letter < " ":
                self.fail("a control character between values")
            if letter != "/":
                return letter
            self._comment()

    def _comment(self) -> None:
        if not self._syntax.comments:
            self._unexpected("/")
        kind = self._taken()
        if kind not in "/*":
            self._unexpected(kind)
        end = re.compile(r"[\r\n]|\Z" if kind == "/" else r"\*/").search(self.text, self.at)
        if end is None:
            self.at = len(self.text)
            self._ended()
        self.at = end.end()

    def _name(self, letter: str) -> str:
        if letter == '"':
            found = _QUOTED.match(self.text, self.at)
            if found is None:
                return self._short(self._string('"', keep=True))
            self.at = found.end()
            return self._short(found[1])
        if letter == "'" and self._syntax.single_quotes:
            return self._short(self._string("'", keep=True))
        if not self._syntax.unquoted_names or letter in _PUNCTUATION or letter < " ":
            self._unexpected(letter)
        begin = self.at - 1
        while self.at < len(self.text) and _in_name(self.text[self.at]):
            self.at += 1
        return self._short(self.text[begin : self.at])

    def _short(self, name: str) -> str:
        if len(name) > _LONGEST_NAME:
            self.fail("a name of more than 50,000 characters")
        return name

    def _string(self, quote: str, *, keep: bool) -> str:
        """From behind the quote that opens a text to behind the one that closes it."""
        parts = []
        while True:
            plain = _PLAIN[quote].match(self.text, self.at)
            parts.append(plain[0])  # type: ignore[index]
            self.at = plain.end()  # type: ignore[union-attr]
            letter = self._taken()
            if letter == quote:
                return "".join(parts) if keep else ""
            if letter == "\\":
                parts.append(self._escaped())
            elif self._syntax.control_chars:
                parts.append(letter)
            else:
                self.fail("a control character in a text")

    def _escaped(self) -> str:
        letter = self._taken()
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter != "u":
            if self._syntax.any_escape or (letter == "'" and self._syntax.single_quotes):
                return letter
            self.fail("an unknown escape in a text")
        code = 0
        for _ in range(4):
            digit = self._taken()
            if digit not in "0123456789abcdefABCDEF":
                self.fail("an unknown escape in a text")
            code = code * 16 + int(digit, 16)
        return chr(code)

    def _value(self, letter: str) -> str:
        if letter == '"':
            self._is_open = True
            return STRING
        if letter == "{":
            return OBJECT
        if letter == "[":
            return ARRAY
        if letter in "0123456789-":
            return self._number(letter)
        if letter == "t":
            self._word("true", 1)
            return TRUE
        if letter == "f":
            self._word("false", 1)
            return FALSE
        if letter == "n":
            self._word("null", 1)
            return NULL
        if letter == "'" and self._syntax.single_quotes:
            self._text = self._string("'", keep=True)
            return STRING
        if letter in {"N", "I"}:
            return self._non_numeric("NaN" if letter == "N" else "Infinity", 1)
        if letter == "+":
            return self._signed("+")
        if _begins_name(letter):
            self._wrong_word("")
        raise self._wrong("an unexpected character")

    def _number(self, first: str) -> str:
        begin = self.at - 1
        found = _NUMBER.match(self.text, begin)
        if found is None:
            return self._signed("-")
        whole, fraction, exponent = found.groups()
        behind = self.text[found.end() : found.end() + 1]
        if whole == "0" and fraction is None and exponent is None and behind in _SOME_DIGIT:
            self.at = found.end()
            if not self._syntax.leading_zeros:
                self.fail("a number that begins with 0")
            zeros = re.compile("0*").match(self.text, begin + (first == "-")).end()  # type: ignore[union-attr]
            if self.text[zeros : zeros + 1] not in _SOME_DIGIT:
                zeros -= 1
            self.at = zeros + 1
            token = self._number(self.text[zeros])
            self.number = "-" + self.number if first == "-" else self.number
            return token
        is_cut = (behind == "." and fraction is None and exponent is None) or (
            behind in ("e", "E") and exponent is None
        )
        if is_cut:
            self._cut_number(begin, first, whole)
        self.at = found.end()
        if self.at - begin - (first == "-") > _LONGEST_NUMBER:
            _check_length(self, whole, fraction, exponent)
        if len(self._scopes) == 1 and behind and behind not in " \t\r\n":
            self.at += 1
            self._unexpected(behind)
        self.number = found[0]
        return INT if fraction is None and exponent is None else FLOAT

    def _cut_number(self, begin: int, first: str, whole: str) -> NoReturn:
        """A point or an e with no digit behind it. A number that begins with 0 is read on to the wrong letter."""
        point = begin + (first == "-") + len(whole)
        if whole != "0":
            self.at = point + 1
        else:
            place = point + 1
            if self.text[point] == ".":
                place = _DIGITS.match(self.text, place).end()  # type: ignore[union-attr]
                if place > point + 1 and self.text[place : place + 1] in ("e", "E"):
                    place += 1
                    place += self.text[place : place + 1] in ("+", "-")
            else:
                place += self.text[place : place + 1] in ("+", "-")
            self.at = min(place + 1, len(self.text))
        if _DIGITS.match(self.text, point + 1).end() >= len(self.text):  # type: ignore[union-attr]
            self.at = len(self.text)
        self.fail("a number that is cut off")

    def _signed(self, sign: str) -> str:
        """Behind a sign that no digit follows."""
        letter = self._taken()
        if letter == "I":
            letter = self._taken()
            if letter == "N":
                return self._non_numeric(f"{sign}INF", 3)
            if letter == "n":
                return self._non_numeric(f"{sign}Infinity", 3)
        raise self._wrong("a sign without a number")

    def _non_numeric(self, word: str, read: int) -> str:
        self._word(word, read)
        if not self._syntax.non_numeric:
            self.fail(f"{word}, which is no JSON")
        self.number = word
        return FLOAT

    def _word(self, word: str, read: int) -> None:
        for place in range(read, len(word)):
            if self.text[self.at : self.at + 1] != word[place]:
                self._wrong_word(word[:place])
            self.at += 1
        behind = self.text[self.at : self.at + 1]
        if behind >= "0" and behind not in "]}" and _in_name(behind):
            self._wrong_word(word)

    def _wrong_word(self, read: str) -> NoReturn:
        length = len(read)
        while self.at < len(self.text) and _in_name(self.text[self.at]):
            self.at += 1
            length += 1
            if length >= _LONGEST_WORD:
                break
        self.fail("an unknown word")

    # ------------------------------------------------------------ errors

    def fail(self, what: str) -> NoReturn:
        """Raise `BadRecordError`, with the place."""
        raise self._wrong(what)

    def _wrong(self, what: str) -> BadRecordError:
        return BadRecordError(f"not JSON: {what}, near character {self.at}")

    def _unexpected(self, letter: str) -> NoReturn:
        self.fail("an unexpected character" if letter else "it ends too early")

    def _ended(self) -> NoReturn:
        self.fail("it ends too early")


_SOME_DIGIT: Final = frozenset("0123456789")


def _check_length(tokens: Tokens, whole: str, fraction: str | None, exponent: str | None) -> None:
    """The digits count, without sign, point and e."""
    digits = len(whole) + len(fraction or ".") - 1
    if exponent:
        digits += len(exponent.lstrip("eE").lstrip("+-"))
    if digits > _LONGEST_NUMBER:
        tokens.fail("a number of more than 1,000 digits")


def paired(text: str) -> str:
    """Escaped halves of a surrogate pair put together."""
    return _PAIR.sub(_together, text) if _SURROGATE.search(text) else text


def joined(text: str) -> str:
    """The same, and a half that is alone is a question mark, as Java writes it."""
    return _SURROGATE.sub("?", paired(text)) if _SURROGATE.search(text) else text


def _together(pair: re.Match[str]) -> str:
    high, low = pair[0][0], pair[0][1]
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + ord(low) - 0xDC00)


def _begins_name(letter: str) -> bool:
    """Whether Java lets a name begin so."""
    return unicodedata.category(letter) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc")


def _in_name(letter: str) -> bool:
    """Whether Java takes a letter for a part of a name."""
    kind = unicodedata.category(letter)
    if kind == "Cc":
        return not "\t" <= letter <= "\r" and not "\x1c" <= letter <= "\x1f"
    return kind in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc", "Nd", "Mc", "Mn", "Cf")
