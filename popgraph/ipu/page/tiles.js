// What a model of IPUs says, as the page asks for it: steps, what lives when, what each tile holds.

/** The model as the page asks it: numbers of tiles, of steps, and of tensors. */
class Tiles {
  constructor(found, numbers) {
    Object.assign(this, found, { numbers, count: found.vectors.tiles });
    this.totals = new Map();
    this.top = this.steps.filter((step) => step.above === null);
    this.steps.forEach((step, id) => (step.id = id));
    this.top.forEach((step, place) => (step.place = place));
    this.lasting = Object.entries(this.memory.always);
    this.always = this.tensors.filter((one) => one.category);
    this.others = this.tensors.filter((one) => !one.category && one.first <= one.last);
    this.firsts = new Map();
    for (const step of this.steps) if (!this.firsts.has(step.operation)) this.firsts.set(step.operation, step.id);
    this.fullest = this.memory.fullestTile;
  }

  static async of(found) {
    const packed = Uint8Array.from(atob(found.vectors.zlib), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Tiles(found, new Float64Array(await new Response(stream).arrayBuffer()));
  }

  /** A list of numbers of all tiles, on one of them; on all together, if that is null. */
  on(vector, tile) {
    if (tile !== null) return this.numbers[vector * this.count + tile];
    if (!this.totals.has(vector)) {
      const own = this.numbers.subarray(vector * this.count, (vector + 1) * this.count);
      this.totals.set(vector, own.reduce((sum, one) => sum + one, 0));
    }
    return this.totals.get(vector);
  }

  /** The most that one tile has of it. */
  most(vector) {
    return this.numbers.subarray(vector * this.count, (vector + 1) * this.count).reduce((most, one) => Math.max(most, one), 0);
  }

  alwaysOn(tile) {
    return this.lasting.reduce((sum, [, vector]) => sum + this.on(vector, tile), 0);
  }

  neededOn(tile) {
    return this.alwaysOn(tile) + this.on(this.memory.peak, tile);
  }

  /** Bytes beside what is always live, at each step. */
  curve(tile) {
    if (tile === null) return this.liveness.total;
    const changes = new Float64Array(this.top.length + 1);
    for (const one of this.others) {
      changes[one.first] += this.on(one.bytes, tile);
      changes[one.last + 1] -= this.on(one.bytes, tile);
    }
    let live = 0;
    return this.top.map((_, place) => {
      live += changes[place];
      return live + this.on(this.liveness.temporary[place], tile);
    });
  }

  /** Whether a step is a branch or a loop, whose cycles are those of the steps in it. */
  isCall(step) {
    return step.turns !== undefined;
  }

  alive(place) {
    return this.others.filter((one) => one.first <= place && place <= one.last);
  }

  operationOf(step) {
    return this.operations[step.operation];
  }

  /** The cycles of some steps, as often as they run. */
  spentOn(ids) {
    return ids.map((id) => this.steps[id]).reduce((sum, step) => sum + (this.isCall(step) ? 0 : step.cycles * step.times), 0);
  }

  /** The step of the program's own row in which a step is. */
  topOf(step) {
    let found = step;
    while (found.above !== null) found = this.steps[found.above];
    return found;
  }

  stepName(step) {
    const inner = step.above === null ? "" : `, within ${this.operationOf(this.topOf(step)).kind}`;
    return `step ${this.topOf(step).place}${inner}`;
  }

  /** Where a tile is: its number among all, and its IPU. */
  tileName(tile) {
    const each = this.machine.tilesPerIPU;
    return this.machine.numIPUs > 1 ? `tile ${tile} (IPU ${Math.floor(tile / each)})` : `tile ${tile}`;
  }
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const peakOf = (values) => values.reduce((most, value, at) => (value > values[most] ? at : most), 0);
