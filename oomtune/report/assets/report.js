"use strict";
// Draws the plots from the data in the page, sorts tables and copies text. Never treats text as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const figures = data.figures;
  const SYMBOLS = { fits: "circle", over_headroom: "triangle-up", device_oom: "x", host_oom: "star", timeout: "diamond", crash: "square" };
  const COLOURS = { fits: "--fits", over_headroom: "--over", device_oom: "--oom", host_oom: "--oom", timeout: "--late", crash: "--crash" };
  const PATTERNS = { fits: "", over_headroom: "/", device_oom: "x", host_oom: "+", timeout: ".", crash: "-" };
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const EDGE = "9px,3px,2px,3px,2px,3px"; // differs from every lane's dash, so that the edge is recognised without colour

  const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const narrow = () => window.innerWidth < 640;
  const series = (index) => theme(`--s${index % 6}`);
  const dash = (index) => DASHES[(index + Math.floor(index / 6)) % 6]; // no two lanes share a colour and a dash
  const showsAll = new Set();
  const visible = (plot, lane) => lane.shown || showsAll.has(plot);
  const memory = (bytes) => (bytes === null ? null : bytes / data.unit.bytes);
  // Plotly interprets some tags and entities in texts, but these are the user's words.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const pen = document.createElement("canvas").getContext("2d");
  const long = (text) => {
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    return pen.measureText(text).width;
  };
  // Cut the middle out of a long name: names that begin alike end differently.
  function short(text, most) {
    const letters = [...text];
    const cut = (many) => `${letters.slice(0, Math.ceil(many / 2)).join("")}…${letters.slice(letters.length - Math.floor(many / 2)).join("")}`;
    if (long(text) <= most) return text;
    let many = letters.length - 1;
    while (many > 2 && long(cut(many)) > most) many -= 1;
    return cut(many);
  }
  const hover = (dots) => dots.map((dot) => dot.text.map((line) => plain(short(line, Math.min(window.innerWidth - 80, 520)))).join("<br>"));
  const folded = (text) => (narrow() ? plain(text).replace(/(.{18,}?) /g, "$1<br>") : plain(text));
  const whole = (sizes) => (Math.max(...sizes) <= 5 ? { dtick: 1 } : {}); // no ticks at half a batch

  function layout(x, y, more = {}) {
    const axis = { gridcolor: theme("--grid"), linecolor: theme("--line"), zerolinecolor: theme("--line"), automargin: true, fixedrange: narrow() };
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: theme("--quiet") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: more.right || 12, t: 8, b: 8 },
      hovermode: "closest", dragmode: narrow() ? false : "zoom",
      hoverlabel: { bgcolor: theme("--raised"), bordercolor: theme("--line"), font: { color: theme("--ink"), size: 12 }, align: "left" },
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, tracegroupgap: 0, maxheight: 1, font: { color: theme("--ink") } },
      xaxis: { ...axis, title: { text: x, standoff: 8 }, ...more.xaxis },
      yaxis: { ...axis, title: { text: y, standoff: 8 }, rangemode: "tozero", ...more.yaxis },
      shapes: more.shapes || [], annotations: more.annotations || [], bargap: more.bargap,
      showlegend: more.showlegend !== false,
    };
  }

  // The limit and the budget as labelled lines across the plot.
  function walls() {
    const across = (bytes, dash, colour) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: memory(bytes), y1: memory(bytes), line: { color: theme(colour), width: 1.5, dash },
    });
    const named = (bytes, text, colour, yanchor) => ({
      xref: "paper", x: 1, xanchor: "left", xshift: 3, y: memory(bytes), yanchor, text, showarrow: false, font: { color: theme(colour), size: 11 },
    });
    return {
      shapes: [across(data.limit_bytes, "solid", "--oom"), across(data.budget_bytes, "dash", "--over")],
      annotations: [named(data.limit_bytes, "limit", "--oom", "bottom"), named(data.budget_bytes, "budget", "--over", "top")],
      yaxis: { range: [0, memory(data.limit_bytes) * 1.16] }, right: 52,
    };
  }

  const marks = (dots, colour) => ({
    symbol: dots.map((dot) => SYMBOLS[dot.ending]), color: colour,
    size: dots.map((dot) => (dot.ending === "fits" ? 8 : 11)),
    line: { width: 1, color: theme("--paper") },
  });

  function dots(all, name, index, more) {
    return {
      type: "scatter", mode: "markers", name, x: all.map((dot) => dot.x), y: all.map((dot) => dot.y),
      marker: marks(all, series(index)), text: hover(all), hovertemplate: "%{text}<extra></extra>", cliponaxis: false, ...more,
    };
  }

  const drawn = {
    frontier() {
      const figure = figures.frontier;
      const traces = [];
      // A line through one point would be invisible.
      const mode = (points) => (figure.has_lengths && points.length > 1 ? "lines" : "markers");
      const at = (points) => points.map((point) => (figure.has_lengths ? point.x : plain(point.x)));
      figure.series.forEach((one, index) => {
        const line = { color: series(index), width: 2.5, dash: dash(index) };
        traces.push(dots(one.runs, one.name, index, { x: at(one.runs), showlegend: !one.line.length, legendgroup: one.name, opacity: 0.8 }));
        traces.push({
          type: "scatter", mode: mode(one.line), name: one.name, legendgroup: one.name, line,
          x: at(one.line), y: one.line.map((point) => point.y), hoverinfo: "skip",
          marker: { symbol: "line-ew-open", size: 34, color: series(index), line: { width: 3 } },
        });
        traces.push({
          type: "scatter", mode: mode(one.edge), name: "edge by the fit", legendgroup: "edge",
          showlegend: index === 0, x: at(one.edge), y: one.edge.map((point) => point.y),
          line: { color: theme("--over"), width: 1.5, dash: EDGE }, marker: { symbol: "line-ew-open", size: 34, color: theme("--over"), line: { width: 1.5 } },
          text: one.edge.map((point) => `${plain(short(one.name, 300))}<br>the fit meets the budget at batch ${point.at}`),
          hovertemplate: "%{text}<extra></extra>",
        });
      });
      // Rings come last and are open, so that they show around a run's mark of any colour.
      const open = figure.series.flatMap((one) => one.line.filter((point) => !point.known));
      if (open.length) {
        traces.push({
          type: "scatter", mode: "markers", name: "edge not known, may be larger", x: at(open), y: open.map((point) => point.y),
          hoverinfo: "skip", marker: { symbol: "circle-open", size: 17, color: theme("--ink"), line: { width: 2 } },
        });
      }
      const lengths = [...new Set(figure.series.flatMap((one) => one.runs.map((dot) => dot.x)))];
      const xaxis = figure.has_lengths
        ? { tickvals: lengths.length <= 12 ? lengths : undefined }
        : { type: "category", tickvals: lengths.map(plain), ticktext: lengths.map((name) => plain(short(name, 160))) };
      const yaxis = whole(figure.series.flatMap((one) => one.runs.map((dot) => dot.y)));
      return [traces, layout(figure.has_lengths ? "sequence length" : "", "batch size", { xaxis, yaxis })];
    },

    curve() {
      const figure = figures.curve;
      const traces = [];
      figure.lanes.forEach((lane, index) => {
        const all = lane.runs.map((dot) => ({ ...dot, y: memory(dot.y) }));
        const shown = { legendgroup: lane.name, visible: visible("curve", lane) };
        traces.push(dots(all, lane.name, index, { ...shown, showlegend: !lane.fit }));
        if (lane.fit) {
          // The legend shows the line, whose dashes tell lanes apart without colour.
          traces.push({
            type: "scatter", mode: "lines", name: lane.name, ...shown, hoverinfo: "skip",
            x: [lane.fit.from[0], lane.fit.to[0]], y: [memory(lane.fit.from[1]), memory(lane.fit.to[1])],
            line: { color: series(index), width: 1.8, dash: dash(index) },
          });
        }
      });
      const xaxis = whole(figure.lanes.flatMap((lane) => lane.runs.map((dot) => dot.x)));
      return [traces, layout("batch size", `peak memory, ${data.unit.name}`, { ...walls(), xaxis })];
    },

    trials() {
      const bars = figures.trials.bars;
      const colours = bars.map((bar) => theme(COLOURS[bar.ending]));
      const trace = {
        type: "bar", x: bars.map((bar) => bar.number), y: bars.map((bar) => memory(bar.peak_bytes ?? (bar.ending === "device_oom" ? data.limit_bytes : 0))),
        marker: {
          color: colours, opacity: bars.map((bar) => (bar.peak_bytes === null ? 0.35 : 0.85)), line: { color: colours, width: 1 },
          pattern: { shape: bars.map((bar) => PATTERNS[bar.ending]), fgcolor: theme("--paper"), fillmode: "overlay", size: 6, solidity: 0.35 },
        },
        text: bars.map((bar) => data.endings[bar.ending]), textposition: "outside", textfont: { color: colours, size: 13 }, cliponaxis: false,
        customdata: hover(bars), hovertemplate: "%{customdata}<extra></extra>",
      };
      const xaxis = { dtick: bars.length > 24 ? undefined : 1, showgrid: false };
      return [[trace], layout("trial", `peak memory, ${data.unit.name}`, { ...walls(), xaxis, bargap: 0.35, showlegend: false })];
    },

    step: () => speed("step", "step, ms"),
    throughput: () => speed("throughput", "samples a second"),

    lengths() {
      const figure = figures.lengths;
      const bars = figure.bars;
      const trace = {
        type: "bar", x: bars.map((bar) => (bar.from + bar.to) / 2), width: bars.map((bar) => (bar.to - bar.from + 1) * 0.92), y: bars.map((bar) => bar.samples),
        marker: { color: theme("--s0"), opacity: 0.75 }, customdata: bars.map((bar) => `${bar.from} to ${bar.to}`),
        hovertemplate: "length %{customdata}<br>%{y:,} samples<extra></extra>",
      };
      const at = (x, dash, colour) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: x, x1: x, line: { color: theme(colour), width: 1.5, dash } });
      const shapes = figure.buckets.map((bucket) => at(bucket.boundary, "dash", "--over"));
      const annotations = figure.buckets.map((bucket) => ({
        x: bucket.boundary, xanchor: "right", yref: "paper", y: 1, yanchor: "top", text: `batch ${bucket.batch_size} `, showarrow: false,
        font: { color: theme("--ink"), size: 11 }, bgcolor: theme("--paper"), textangle: narrow() ? -90 : 0,
      }));
      return [[trace], layout("length of a sample", "samples", { shapes, annotations, showlegend: false })];
    },

    parts() {
      const bars = [...figures.parts.bars].reverse();
      const trace = {
        type: "bar", orientation: "h", y: bars.map((bar) => folded(bar.name)), x: bars.map((bar) => memory(bar.peak_bytes)),
        marker: { color: theme("--accent") }, customdata: hover(bars), hovertemplate: "%{customdata}<extra></extra>",
      };
      return [[trace], layout(data.unit.name, "", { showlegend: false })];
    },
  };

  function speed(plot, title) {
    const traces = figures[plot].lanes.flatMap((lane, index) => {
      const shown = { legendgroup: lane.name, visible: visible(plot, lane) };
      // The line takes the fastest of several runs of one size: something else slowed the others down.
      const quickest = new Map();
      for (const run of lane.runs) if (!(quickest.get(run.x)?.step_ms <= run.step_ms)) quickest.set(run.x, run);
      const line = [...quickest.values()];
      return [
        {
          type: "scatter", mode: "lines", name: lane.name, ...shown, hoverinfo: "skip",
          x: line.map((run) => run.x), y: line.map((run) => run.y), line: { color: series(index), width: 1.8, dash: dash(index) },
        },
        dots(lane.runs, lane.name, index, { ...shown, showlegend: false }),
      ];
    });
    return [traces, layout("batch size", title, { xaxis: whole(figures[plot].lanes.flatMap((lane) => lane.runs.map((run) => run.x))) })];
  }

  // The legend goes under the axis and takes as many lines as its names need.
  function makeRoom(place, traces, look) {
    const room = place.clientWidth - look.margin.r - 62;
    const name = (trace) => short(trace.name, room - 46);
    const named = traces.filter((trace) => trace.visible !== false && trace.showlegend !== false && trace.x.length);
    const width = Math.max(0, ...named.map((trace) => long(name(trace)))) + 8;
    const lines = Math.ceil(named.length / Math.max(1, Math.floor(room / (width + 46))));
    for (const trace of traces) trace.name = plain(name(trace));
    look.legend.entrywidth = width;
    look.margin.b = 48 + 20 * lines;
    look.height = (narrow() ? 240 : 280) + look.margin.b;
    place.style.height = `${look.height}px`;
  }

  const config = { displayModeBar: false, responsive: true, doubleClick: "reset" };
  function draw() {
    const plots = [...document.querySelectorAll("[data-plot]")].map((place) => {
      const [traces, look] = drawn[place.dataset.plot]();
      if (look.showlegend) makeRoom(place, traces, look);
      return Plotly.react(place, traces, look, config);
    });
    Promise.all(plots).then(() => { document.documentElement.dataset.drawn = "yes"; });
  }
  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.matchMedia("(max-width: 639px)").addEventListener("change", draw);

  const announcer = document.querySelector(".announcer");
  for (const button of document.querySelectorAll("button.lanes")) {
    const [plot, label] = [button.dataset.lanes, button.textContent];
    button.addEventListener("click", () => {
      if (!showsAll.delete(plot)) showsAll.add(plot);
      button.textContent = showsAll.has(plot) ? "Show fewer lanes" : label;
      announcer.textContent = showsAll.has(plot) ? "showing all lanes" : "showing fewer lanes";
      draw();
    });
  }
  for (const button of document.querySelectorAll(".sortable th button")) {
    button.addEventListener("click", () => sort(button));
  }
  function sort(button) {
    const heading = button.closest("th");
    const column = [...heading.parentNode.children].indexOf(heading);
    const down = heading.getAttribute("aria-sort") === "ascending";
    const body = heading.closest("table").tBodies[0];
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const number = button.dataset.kind === "number";
    const rows = [...body.rows].sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === "" || b === "") return (a === "") - (b === ""); // unknown values come last in either order
      const order = number ? a - b : a.localeCompare(b, undefined, { numeric: true });
      return down ? -order : order;
    });
    body.append(...rows);
    for (const other of heading.parentNode.children) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    announcer.textContent = `sorted by ${button.textContent.trim()}, ${down ? "descending" : "ascending"}`;
  }

  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const copied = await copy(document.getElementById(button.dataset.copy));
      button.textContent = copied ? "Copied" : "Select and copy";
      announcer.textContent = button.textContent;
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
  async function copy(source) {
    try {
      await navigator.clipboard.writeText(source.textContent);
      return true;
    } catch {
      // A page opened from a file may lack the clipboard API.
      getSelection().selectAllChildren(source);
      return document.execCommand("copy");
    }
  }
})();
