"""The browser fixture of the viewer's pages, for the view of IPUs."""

from tests.browsers import browser as browser
