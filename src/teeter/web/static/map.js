// The map: every item a point on a canvas, 100,000 of them; a click opens the nearest.
"use strict";

(() => {
  const { start, make } = teeter;
  const at = (id) => document.getElementById(id);
  const canvas = at("map"), pen = canvas.getContext("2d");
  // Told apart by people who see few colours [Okabe and Ito 2008; Tol 2021].
  const palette = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#999933", "#882255", "#44aa99", "#aa4499", "#ddcc77", "#332288"];
  let points = null, ldm = null, labels = new Map(), view = { x: 0, y: 0, zoom: 1 }, marked = -1, asked = 0;

  // What is drawn in the background: asked for until it is there. Null if something else was asked for meanwhile.
  async function drawn(how, pause, mine) {
    for (;;) {
      const answer = await teeter.ask(teeter.address(`/map?how=${how}`));
      if (mine !== asked) return null;
      if (answer.status !== 202) return answer;
      const state = await answer.json();
      if (state.state === "failed") throw new Error(state.detail);
      await new Promise((done) => setTimeout(done, pause));
    }
  }

  async function load() {
    const mine = ++asked, how = at("how").value;
    at("told").textContent = how === "tsne" ? "Laying out by neighbourhoods; this takes a while, and the page can be left…" : "Drawing…";
    try {
      const answer = await drawn(how, how === "tsne" ? 2000 : 300, mine);
      if (!answer) return;
      const data = await answer.arrayBuffer();
      const count = new Int32Array(data, 0, 1)[0];
      const column = (k, Kind) => new Kind(data, 4 + 4 * count * k, count);
      points = { count, x: column(0, Float32Array), y: column(1, Float32Array), predicted: column(2, Int32Array) };
      const told = await (await teeter.ask(teeter.address("/labels"))).json();
      labels = new Map(told.labels);
      const version = answer.headers.get("x-model-version");
      at("told").textContent = `${count.toLocaleString()} items, ${labels.size.toLocaleString()} labelled, ${version === "0" ? "no model yet" : `model ${version}`}.`;
      draw();
      if (version === "0") return;
      const scores = await drawn("ldm", 1000, mine);
      if (scores) ldm = new Float32Array(await scores.arrayBuffer(), 4);
      if (scores && at("colour").value === "ldm") draw();
    } catch (error) { at("told").textContent = error.message; }
  }

  const wide = () => canvas.width / 2.3 * view.zoom, high = () => canvas.height / 2.3 * view.zoom;
  const place = (k) => [canvas.width / 2 + (points.x[k] - view.x) * wide(), canvas.height / 2 - (points.y[k] - view.y) * high()];

  // A group of points for each colour, so that the pen changes its colour a few times only.
  function groups() {
    const by = at("colour").value, found = new Map();
    const ranks = by === "ldm" ? ranked() : null;
    const rest = getComputedStyle(document.body).getPropertyValue("--rest");
    for (let k = 0; k < points.count; k++) {
      let colour = rest, size = 2;
      if (by === "label") { if (labels.has(k)) { colour = palette[labels.get(k) % palette.length]; size = 4; } }
      else if (by === "predicted") { if (points.predicted[k] >= 0) colour = palette[points.predicted[k] % palette.length]; }
      else if (ranks && ranks[k] >= 0) colour = heat(ranks[k]);
      const key = `${size} ${colour}`;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(k);
    }
    return [...found].sort(([one], [other]) => one[0] - other[0]);
  }

  // LDM by its rank in ten steps: a few small ones would drown among equals otherwise.
  function ranked() {
    const known = ldm ? [...ldm.keys()].filter((k) => k < points.count && !Number.isNaN(ldm[k])) : [];
    if (!known.length) return null;
    known.sort((one, other) => ldm[one] - ldm[other]);
    const ranks = new Int8Array(points.count).fill(-1);
    known.forEach((k, rank) => { ranks[k] = Math.floor(10 * rank / known.length); });
    return ranks;
  }

  const heat = (rank) => ["#d7301f", "#e6550d", "#f16913", "#fd8d3c", "#fdae6b", "#c6b5a5", "#9eb5c8", "#7fa7c4", "#6a97ba", "#5a86ab"][rank];

  function draw() {
    const box = canvas.getBoundingClientRect(), dense = window.devicePixelRatio || 1;
    canvas.width = box.width * dense; canvas.height = box.height * dense;
    if (!points) return;
    for (const [key, group] of groups()) {
      const side = Number(key[0]) * dense * Math.min(2, Math.sqrt(view.zoom)) * (points.count > 20000 ? 0.75 : 1.25);
      pen.fillStyle = key.slice(2);
      for (const k of group) {
        const [x, y] = place(k);
        if (x > -5 && y > -5 && x < canvas.width + 5 && y < canvas.height + 5) pen.fillRect(x - side / 2, y - side / 2, side, side);
      }
    }
    if (marked >= 0) {
      const [x, y] = place(marked);
      pen.strokeStyle = getComputedStyle(document.body).getPropertyValue("--ink");
      pen.lineWidth = 2 * dense;
      pen.beginPath(); pen.arc(x, y, 9 * dense, 0, 7); pen.stroke();
    }
    legend();
  }

  function legend() {
    const by = at("colour").value, dot = (colour, text) => { const mark = make("i"); mark.style.background = colour; return make("li", {}, mark, text); };
    const rest = getComputedStyle(document.body).getPropertyValue("--rest");
    at("legend").replaceChildren(...(by === "ldm" ? [dot(heat(0), "smallest tenth: teeters most"), dot(heat(4), "middle"), dot(heat(9), "largest tenth"), dot(rest, ldm ? "not known" : "being computed, or no model yet")] :
      [...start.classes.map((name, k) => dot(palette[k % palette.length], name)), dot(rest, by === "label" ? "no label" : "no prediction")]));
  }

  async function open(k) {
    marked = k;
    draw();
    const one = await (await teeter.ask(teeter.address(`/item?place=${k}`))).json();
    const told = [one.label ? `Label: ${one.state}` : one.state || "Not labelled"];
    if (points.predicted[k] >= 0) told.push(`predicted ${start.classes[points.predicted[k]]}`);
    if (ldm && !Number.isNaN(ldm[k])) told.push(`LDM ${ldm[k].toPrecision(2)}`);
    const shown = teeter.shown(one);
    shown.classList.add("opened");
    at("opened").replaceChildren(make("h2", { text: "Item" }), shown, make("p", { class: "soft", text: told.join(" · ") }),
      make("p", {}, make("a", { href: teeter.page(one.item), text: "Open it" })));
  }

  function nearest(x, y) {
    let best = -1, least = (14 * (window.devicePixelRatio || 1)) ** 2;
    for (let k = 0; k < points.count; k++) {
      const [px, py] = place(k), far = (px - x) ** 2 + (py - y) ** 2;
      if (far < least) { least = far; best = k; }
    }
    return best;
  }

  const spot = (event) => { const box = canvas.getBoundingClientRect(), dense = canvas.width / box.width; return [(event.clientX - box.left) * dense, (event.clientY - box.top) * dense]; };
  let from = null;
  canvas.addEventListener("pointerdown", (event) => { from = { at: spot(event), x: view.x, y: view.y, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!from || !points) return;
    const [x, y] = spot(event), [dx, dy] = [x - from.at[0], y - from.at[1]];
    if (Math.hypot(dx, dy) > 6) from.moved = true;
    if (from.moved) { view.x = from.x - dx / wide(); view.y = from.y + dy / high(); requestAnimationFrame(draw); }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (from && !from.moved && points) { const k = nearest(...spot(event)); if (k >= 0) open(k); }
    from = null;
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    view.zoom = Math.min(200, Math.max(0.5, view.zoom * (event.deltaY < 0 ? 1.25 : 0.8)));
    requestAnimationFrame(draw);
  }, { passive: false });
  at("whole").addEventListener("click", () => { view = { x: 0, y: 0, zoom: 1 }; draw(); });
  at("colour").addEventListener("change", draw);
  at("how").addEventListener("change", load);
  at("tools").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  load();
})();
