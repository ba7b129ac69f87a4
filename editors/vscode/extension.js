// The extension: starts `popgraph lsp` for .pgraph texts, and shows a model by `popgraph view`.

const { spawn } = require("node:child_process");
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client = null;
const views = new Set();

/** The command and its first arguments, with the folders of the settings. */
function commandLine(...more) {
  const settings = vscode.workspace.getConfiguration("popgraph");
  const [command, ...first] = settings.get("command");
  const folders = settings.get("folders").flatMap((folder) => ["-I", folder]);
  return { command, args: [...first, ...more, ...folders] };
}

async function activate(context) {
  context.subscriptions.push(vscode.commands.registerCommand("popgraph.view", view));
  const selector = { documentSelector: [{ language: "pgraph" }] };
  client = new LanguageClient("popgraph", "PopGraph", commandLine("lsp"), selector);
  try {
    await client.start();
  } catch (error) {
    const hint = 'The setting popgraph.command says how it is started; it needs pip install "popgraph[lsp]".';
    vscode.window.showErrorMessage(`The language server of PopGraph does not start. ${hint} (${error.message})`);
  }
}

/** Serves the view of the text in the editor, and shows it in the browser. */
async function view() {
  const document = vscode.window.activeTextEditor?.document;
  if (document === undefined) return;
  if (document.isDirty) await document.save();
  const { command, args } = commandLine("view", document.fileName, "--no-browser");
  const served = spawn(command, args);
  views.add(served);
  let said = "";
  const hear = (data) => {
    said += data;
    const address = said.match(/http:\/\/127\.0\.0\.1:\d+\/\S+/);
    if (address && served.exitCode === null && !served.shown) {
      served.shown = true;
      vscode.env.openExternal(vscode.Uri.parse(address[0]));
    }
  };
  served.stdout.on("data", hear);
  served.stderr.on("data", hear);
  served.on("error", (error) => vscode.window.showErrorMessage(`popgraph does not start: ${error.message}`));
  served.on("exit", (code) => {
    views.delete(served);
    if (code) vscode.window.showErrorMessage(said.trim() || `popgraph view ends with ${code}`);
  });
}

function deactivate() {
  for (const served of views) served.kill();
  return client?.stop();
}

module.exports = { activate, deactivate };
