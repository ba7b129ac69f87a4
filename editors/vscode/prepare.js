// Brings what the repository has elsewhere: the grammar and the licence.

const { copyFileSync } = require("node:fs");
const { join } = require("node:path");

const root = join(__dirname, "..", "..");
copyFileSync(join(root, "popgraph/builder/pgraph/print/pgraph.tmLanguage.json"), join(__dirname, "pgraph.tmLanguage.json"));
copyFileSync(join(root, "LICENSE"), join(__dirname, "LICENSE"));
