// What the programs share: records that can be checked, and the printing of results.

export const BATCH_SIZE = 20
const PATIENCE_MS = 60_000

// Return the value of the record with this number: long and repetitive enough to compress.
export const value = number => `value ${number} `.repeat(20)

// Return the timestamp of a record in milliseconds: a second of 1970 for each batch.
export const time = (batch, number) => 1000 * (batch + 1) + number

// Print a line of results: a name, a space, and the rest.
export const say = (name, ...rest) => console.log(name, ...rest)

// Wait until the condition is true; throw when it is not in time.
export async function eventually (what, condition) {
  const deadline = Date.now() + PATIENCE_MS
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}`)
    await new Promise(resolve => setTimeout(resolve, 10))
  }
}

// Return what the look finds, as soon as it is what is wanted, and at the latest after the patience. A broker of Apache Kafka
// learns of a change a moment after the controller has confirmed it.
export async function settled (wanted, look) {
  const deadline = Date.now() + PATIENCE_MS
  let found = await look()
  while (found !== wanted && Date.now() < deadline) {
    await new Promise(resolve => setTimeout(resolve, 10))
    found = await look()
  }
  return found
}

// Call the story that the command line names with its arguments.
export async function run (stories) {
  const [name, ...args] = process.argv.slice(2)
  const timer = setTimeout(() => { throw new Error('the story does not end') }, 2 * PATIENCE_MS)
  await stories[name](...args)
  clearTimeout(timer)
  process.exit(0)
}
