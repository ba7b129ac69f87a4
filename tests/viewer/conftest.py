"""The fixtures of the tests of pages."""

from tests.browsers import browser as browser
