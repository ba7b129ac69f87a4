// How a graph is painted: boxes, edges, overview.

const FONT = {
  kind: '600 13px system-ui, "Liberation Sans", sans-serif',
  type: '11.5px system-ui, "Liberation Sans", sans-serif',
};

/** How strong the colour is of what takes a part of what takes most. */
const heat = (part) => (0.06 + 0.8 * Math.sqrt(part)).toFixed(3);

/** The colours of the page as it is now, light or dark. */
function colours() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
}

GraphView.prototype.draw = function draw() {
  if (this.width === undefined || this.pending) return;
  this.pending = requestAnimationFrame(() => {
    this.pending = 0;
    this.paint();
  });
};

GraphView.prototype.paint = function paint() {
  const { context, ratio, scale } = this;
  const paint = colours();
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = paint("back");
  context.fillRect(0, 0, this.canvas.width, this.canvas.height);
  context.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * this.x, ratio * this.y);
  const seen = [-this.x / scale, -this.y / scale, (this.width - this.x) / scale, (this.height - this.y) / scale];
  const chosen = this.act.chosen();
  const marked = new Set(related(chosen)[this.level].flatMap((id) => this.standsFor(id)));
  const own = chosen?.kind === this.level ? chosen.id : null;
  const boxes = this.boxes.filter((box) => box.x < seen[2] && box.y < seen[3]
    && box.x + box.w > seen[0] && box.y + box.h > seen[1]);
  const most = this.colour === "operator" ? 0 : this.most();
  for (const box of boxes) if (box.open) paintFrame(context, box, paint, scale);
  this.paintEdges(seen, own, paint);
  for (const box of boxes) {
    if (box.open) continue;
    if (box.group) paintGroup(context, box, paint, scale, holdsAny(box.item, marked, this.leaves));
    else this.paintNode(box, paint, most, marked.has(box.item.id), own === box.item.id);
  }
  this.paintMap(paint, seen);
};

function holdsAny(group, marked, leaves) {
  for (const id of marked) {
    for (let one = leaves[id].parent; one; one = one.parent) if (one === group) return true;
  }
  return false;
}

function rounded(context, { x, y, w, h }, radius) {
  context.beginPath();
  context.roundRect(x, y, w, h, radius);
}

function paintFrame(context, box, paint, scale) {
  rounded(context, box, 10);
  context.fillStyle = paint("group");
  context.fill();
  context.strokeStyle = paint("group-line");
  context.lineWidth = 1;
  context.stroke();
  if (scale < ZOOM.text * 0.6) return;
  context.font = FONT.type;
  context.fillStyle = paint("soft");
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(`▾ ${box.item.label}`, box.x + 11, box.y + 15, box.w - 20);
}

function paintGroup(context, box, paint, scale, marked) {
  const { x, y, w, h } = box;
  rounded(context, { x: x + 3, y: y + 3, w, h }, 9);
  context.fillStyle = paint("group");
  context.strokeStyle = marked ? paint("marked") : paint("group-line");
  context.lineWidth = marked ? 2 : 1;
  context.fill();
  context.stroke();
  rounded(context, box, 9);
  context.fillStyle = marked ? paint("marked-back") : paint("panel");
  context.fill();
  context.stroke();
  if (scale < ZOOM.text) return;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = paint("text");
  context.font = FONT.kind;
  context.fillText(`▸ ${box.item.label}`, x + w / 2, y + 17, w - 16);
  context.fillStyle = paint("soft");
  context.font = FONT.type;
  context.fillText(counted(box.item.size, "node"), x + w / 2, y + 33, w - 16);
}

GraphView.prototype.paintNode = function paintNode(box, paint, most, marked, own) {
  const { context } = this;
  const { node } = box.item;
  const terminal = node.kind === "input" || node.kind === "output";
  const { colour } = this.kinds.get(node.kind) ?? { colour: PALETTE };
  rounded(context, box, terminal ? box.h / 2 : 7);
  context.fillStyle = terminal ? paint("panel") : paint(`c${colour}`);
  if (most && !terminal) {
    const part = amount(this.level, node.id, this.colour) / most;
    context.fillStyle = paint("c8");
    context.fill();
    context.fillStyle = `rgba(${paint("heat")}, ${heat(part)})`;
  }
  context.fill();
  context.lineWidth = own ? 3 : marked ? 2.2 : 1;
  context.strokeStyle = own ? paint("accent") : marked ? paint("marked")
    : terminal ? paint("line-strong") : paint(most ? "b8" : `b${colour}`);
  context.stroke();
  if (this.scale < ZOOM.text) return;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = paint("text");
  context.font = FONT.kind;
  context.fillText(this.kindText(node), box.x + box.w / 2, box.y + 14, box.w - 12);
  context.fillStyle = paint(most ? "text" : "soft");
  context.font = FONT.type;
  context.fillText(this.typeText(node), box.x + box.w / 2, box.y + 28.5, box.w - 12);
};

GraphView.prototype.paintEdges = function paintEdges(seen, own, paint) {
  const { context } = this;
  const item = this.leaves[own];
  const late = [];
  context.lineWidth = Math.max(1, 0.6 / this.scale);
  context.strokeStyle = paint("edge");
  context.beginPath();
  for (const path of this.paths) {
    const [left, top, right, bottom] = path.bounds;
    if (left > seen[2] || right < seen[0] || top > seen[3] || bottom < seen[1]) continue;
    if (item && (path.source === item || path.target === item)) late.push(path);
    else trace(context, path.points);
  }
  context.stroke();
  context.strokeStyle = paint("accent");
  context.lineWidth = 2;
  context.beginPath();
  for (const path of late) trace(context, path.points);
  context.stroke();
};

function trace(context, points) {
  context.moveTo(...points[0]);
  for (let at = 1; at < points.length; at += 1) {
    const [[x0, y0], [x1, y1]] = [points[at - 1], points[at]];
    if (Math.abs(x0 - x1) < 0.5) context.lineTo(x1, y1);
    else {
      const bend = (y1 - y0) / 2;
      context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
    }
  }
}

/** The overview: boxes are drawn once for each arrangement, the frame of what is seen each time. */
GraphView.prototype.paintMap = function paintMap(paint, seen) {
  const { mini, drawn } = this;
  mini.parentElement.hidden = this.sees(drawn);
  const context = mini.getContext("2d");
  const k = Math.min((mini.width - 8) / this.w, (mini.height - 8) / this.h);
  const [dx, dy] = [(mini.width - this.w * k) / 2, (mini.height - this.h * k) / 2];
  this.mapScale = { k, dx, dy };
  const theme = paint("panel");
  if (this.mapDrawn?.theme !== theme) {
    const still = document.createElement("canvas");
    Object.assign(still, { width: mini.width, height: mini.height });
    const fixed = still.getContext("2d");
    for (const box of this.boxes) {
      fixed.fillStyle = paint(box.open ? "group" : box.group ? "group-line" : "b8");
      fixed.fillRect(dx + box.x * k, dy + box.y * k, Math.max(1, box.w * k), Math.max(1, box.h * k));
    }
    this.mapDrawn = { theme, still };
  }
  context.clearRect(0, 0, mini.width, mini.height);
  context.drawImage(this.mapDrawn.still, 0, 0);
  context.strokeStyle = paint("accent");
  context.lineWidth = 1.5;
  context.strokeRect(dx + seen[0] * k, dy + seen[1] * k, (seen[2] - seen[0]) * k, (seen[3] - seen[1]) * k);
};
