"""The browser fixture of the viewer's pages, for the view of IPUs."""

from tests.viewer.conftest import browser as browser
