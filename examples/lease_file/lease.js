// Is the lease of this command live? new Lease().remaining(): what is left in ms, 0 once over.
"use strict";
const fs = require("fs");

const FRESH = 1; // ms. Without mmap each read is a call, so a record is used again for this long.
const STEP = 5; // ms. A suspend moves the wall clock by more, against the monotonic clock.

module.exports = class Lease {
  /** Throws for what is no record of a lease of this boot. */
  constructor(path = process.env.LEASEHOLD_LEASE) {
    const boot = fs.readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
    let timens = "0"; // Linux before 5.6 has one time.
    try { timens = fs.readlinkSync("/proc/self/ns/time").replace(/\D/g, ""); } catch { }
    if (fs.readFileSync("/proc/self/mountinfo").includes(" /proc/uptime ")) // As lxcfs has it.
      throw Error("uptime is not the machine's");
    Object.assign(this, { path, machine: `boot=${boot} timens=${timens}`, over: false });
    this.open();
  }
  open() {
    if (this.file !== undefined) fs.closeSync(this.file);
    this.file = undefined;
    const { O_RDONLY, O_NONBLOCK, O_NOCTTY } = fs.constants;
    this.file = fs.openSync(this.path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    const found = fs.fstatSync(this.file);
    if (!found.isFile() || ![0, process.geteuid()].includes(found.uid)) throw Error("not ours");
    Object.assign(this, { buffer: Buffer.alloc(found.size), line: undefined });
    this.read();
  }
  read() {
    this.readAt = performance.now();
    for (let tries = 0; tries < 100; tries++) { // Of a write, a part may be seen.
      const length = fs.readSync(this.file, this.buffer, { position: 0 });
      const line = this.buffer.latin1Slice(0, length);
      if (line === this.line) return; // It was judged before.
      Object.assign(this, { deadline: 0, line: undefined });
      const [, text, sum] = /^(leasehold-lease 1 .*) sum=([0-9a-f]{16})\n$/.exec(line) ?? [];
      const add = (hash, byte) => BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
      const hash = Buffer.from(text ?? "", "latin1").reduce(add, 0xcbf29ce484222325n);
      if (!sum || hash !== BigInt("0x" + sum)) continue;
      const [, , state, deadline, , ...rest] = text.split(" ");
      if (rest.slice(0, 2).join(" ") !== this.machine) throw Error("of another boot");
      if (state === "state=live") this.deadline = Number(BigInt(deadline.slice(9)) / 1000n) / 1000;
      this.line = line;
      return;
    }
    throw Error("no record of a lease, or of a later version");
  }
  now() {
    const mono = performance.now(), wall = Date.now() - mono;
    if (!(Math.abs(wall - this.wall) < STEP)) {
      const boot = 1000 * parseFloat(fs.readFileSync("/proc/uptime", "latin1"));
      Object.assign(this, { wall, ahead: boot + 10 + STEP - mono }); // Uptime has steps of 10 ms.
    }
    return mono + this.ahead;
  }
  remaining() {
    for (let again = false; !this.over; again = true)
      try {
        if (again) this.open(); // A file that was deleted is made again.
        if (performance.now() - this.readAt >= FRESH) this.read();
        const left = this.deadline - this.now(); // The clock is last.
        if (left > 0) return left;
        throw Error("over");
      } catch { this.over = again; }
    return 0; // Final.
  }
};
