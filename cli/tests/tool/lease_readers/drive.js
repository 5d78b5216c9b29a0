// As drive.c.
const Lease = require(process.argv[2]);
let lease;
try {
  lease = new Lease();
} catch (why) {
  console.error(`refused: ${why.message}`);
  process.exit(65);
}
require("readline").createInterface({ input: process.stdin }).on("line", (times) => {
  const began = performance.now();
  let left = 0;
  for (let i = 0; i < times; i++) left = lease.remaining();
  const each = (performance.now() - began) / times;
  process.stdout.write(`${Math.floor(left * 1e6)} ${Math.floor(each * 1e6)}\n`);
});
