"""The fixtures of pages, for the view of IPUs."""

from tests.viewer.conftest import browser as browser
