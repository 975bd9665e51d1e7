/* When growing answers are painted: once a frame, and less often where a frame takes long. */

/** A function that calls `update` soon: at most once a frame, and at most a quarter of the time. */
export function painter(update) {
  let due = false;
  let free = 0;
  const run = () => {
    due = false;
    const begun = performance.now();
    update();
    // Formulas and colours follow as microtasks, and count too.
    setTimeout(() => {
      const ended = performance.now();
      free = ended + 3 * (ended - begun);
    });
  };
  return () => {
    if (due) return;
    due = true;
    const wait = free - performance.now();
    if (wait > 16) setTimeout(() => requestAnimationFrame(run), wait); else requestAnimationFrame(run);
  };
}
