"""`sasl.jaas.config`: what Java's tokenizer reads, and what is refused without showing any of it."""

from __future__ import annotations

import pytest

from selectroute.kafka.client.jaas import login
from selectroute.kafka.client.values import SettingError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f"{PLAIN} required username='u' password='p' ;", {"username": "u", "password": "p"}),
        (f'{PLAIN}  REQUIRED\n\tusername = "u"\n\tpassword\n=\n"p"\n;\n', {"username": "u", "password": "p"}),
        (f"{PLAIN} required username=u password=p-a.s_s$1é;", {"username": "u", "password": "p-a.s_s$1é"}),
        (f"{PLAIN} required;", {}),
        (rf'{PLAIN} required p="a\"b\\c\td\101\7\n\q";', {"p": 'a"b\\c\tdA\x07\nq'}),
        (rf'{PLAIN} required p="\3771\4771";', {"p": "\xff1'71"}),
        (f"""{PLAIN} required p="it's" q='"';""", {"p": "it's", "q": '"'}),
        (f'{PLAIN} required p="a=b;c//d/*e*/ f";', {"p": "a=b;c//d/*e*/ f"}),
        (f'{PLAIN} required // comment "\n p=/* a\n */"v";// end', {"p": "v"}),
        (f'{PLAIN} required "p"="";', {"p": ""}),
        (f'{PLAIN} required p="1" p="2";', {"p": "2"}),
    ],
)
def test_entries_are_read_as_java_reads_them(text, options):
    found = login(text)
    assert (found.module, found.options) == ("PlainLoginModule", options)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "begin with a login module"),
        ("; secret", "begin with a login module"),
        (PLAIN, "have `required`"),
        (f'{PLAIN} username="secret";', "have `required`"),
        (f'{PLAIN} required username="u" password="secret"', "end with a semicolon"),
        (f'{PLAIN} required password="secret;', "a quote that is not closed"),
        (f'{PLAIN} required password="secret\n";', "a quote that is not closed"),
        (f"{PLAIN} required password=secret/secret;", "a character outside of quotes"),
        (f"{PLAIN} required password=1secret;", "a character outside of quotes"),
        (f"{PLAIN} required password=;", "in double quotes"),
        (f"{PLAIN} required secret;", "in double quotes"),
        (f"{PLAIN} required password=secret secret;", "in double quotes"),
        (f'{PLAIN} required = "secret";', "in double quotes"),
        (f'{PLAIN} required a="secret"; {PLAIN} required;', "have one entry"),
    ],
)
def test_other_entries_are_refused_without_showing_them(text, problem):
    with pytest.raises(SettingError) as raised:
        login(text)
    assert problem in str(raised.value) and str(raised.value).startswith("sasl.jaas.config ")
    assert "secret" not in repr(raised.value)


def test_a_login_shows_no_option():
    assert "secret" not in repr(login(f'{PLAIN} required password="secret";'))
