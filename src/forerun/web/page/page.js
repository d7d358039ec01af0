// Draws charts in the colours of the page, fits tables to its width, copies lines, keeps the address of the answer. Nothing is fetched from elsewhere.
(function () {
  let library;
  function plotly() {
    library = library || new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = "/page/plotly.js";
      script.onload = () => done(window.Plotly);
      script.onerror = failed;
      document.head.append(script);
    });
    return library;
  }
  function dressed(layout, element) {
    const style = getComputedStyle(element);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { zeroline: false, automargin: true, color: colour("--text"), gridcolor: colour("--grid"), linecolor: colour("--line") };
    return Object.assign({}, layout, {
      hovermode: "closest", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { family: "system-ui, sans-serif", size: 12, color: colour("--text") },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--text") } },
      xaxis: Object.assign({}, layout.xaxis, axis), yaxis: Object.assign({}, layout.yaxis, axis),
    });
  }
  const widths = new ResizeObserver((entries) => {
    for (const { target } of entries) if (target.offsetWidth && target.dataset.drawn) requestAnimationFrame(() => window.Plotly.Plots.resize(target));
  });
  function draw(element) {
    const chart = JSON.parse(element.dataset.figure);
    return window.Plotly.react(element, chart.data, dressed(chart.layout, element), { displaylogo: false, displayModeBar: false });
  }
  function drawNew() {
    for (const element of document.querySelectorAll(".plot[data-figure]:not([data-asked])")) {
      element.dataset.asked = "yes";
      plotly().then(() => draw(element)).then(() => { element.dataset.drawn = "yes"; widths.observe(element); });
    }
  }
  // Columns that a narrow page has no room for are left to a click: those of the highest rank first, then the last ones.
  function fitColumns(frame) {
    const table = frame.querySelector("table");
    const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
    const rows = [...table.rows];
    if (!frame.clientWidth || heads.length < 3 || rows.some((row) => row.cells.length !== heads.length)) return;
    const show = (at, shown) => rows.forEach((row) => row.cells[at].classList.toggle("left-out", !shown));
    heads.forEach((_, at) => show(at, true));
    const rank = (at) => Number(heads[at].dataset.rank || 0);
    const order = heads.map((_, at) => at).slice(1).sort((a, b) => rank(b) - rank(a) || b - a);
    const hidden = [];
    while (frame.dataset.columns !== "all" && frame.scrollWidth > frame.clientWidth && order.length > 1) {
      hidden.push(order.shift());
      show(hidden.at(-1), false);
    }
    columnsButton(frame, hidden.sort((a, b) => a - b).map((at) => heads[at].textContent.trim() || (at + 1 < heads.length ? "bars" : "the last one")));
  }
  function columnsButton(frame, names) {
    let button = frame.nextElementSibling;
    if (!button || !button.matches("button.columns")) {
      if (!names.length) return;
      button = Object.assign(document.createElement("button"), { type: "button", className: "columns" });
      button.addEventListener("click", () => {
        frame.dataset.columns = frame.dataset.columns === "all" ? "" : "all";
        fitColumns(frame);
      });
      frame.after(button);
    }
    const all = frame.dataset.columns === "all";
    button.hidden = !all && !names.length;
    button.setAttribute("aria-expanded", all);
    button.textContent = all ? "Fewer columns" : (names.length > 1 ? names.length + " more columns: " : "One more column: ") + names.join(", ");
  }
  const frames = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.dataset.width === String(target.clientWidth)) continue;
      target.dataset.width = target.clientWidth;
      fitColumns(target);
    }
  });
  function watchTables() {
    for (const frame of document.querySelectorAll(".reply .scroll:not(.card):not([data-watched])")) {
      frame.dataset.watched = "yes";
      frames.observe(frame);
    }
  }
  function keepAddress() {
    for (const element of document.querySelectorAll(".again[data-state]:not([data-kept])")) {
      element.dataset.kept = "yes";
      if (element.offsetParent !== null) history.replaceState(null, "", element.dataset.state);
    }
  }
  async function copied(words) {
    try {
      await navigator.clipboard.writeText(words);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: words });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("button.copy");
    if (!button) return;
    const code = button.closest(".lines");
    copied(button.dataset.link ? new URL(button.dataset.link, location.href).href : code.querySelector("code").textContent)
      .then(() => { button.textContent = "Copied"; setTimeout(() => (button.textContent = "Copy"), 1500); });
  });
  // The Enter key asks, from any field that holds one line and opens no list.
  document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (event.key !== "Enter" || event.shiftKey || !field.matches("#body input[type=text], #body textarea:not([rows]), #body textarea[rows='1']")) return;
    if (field.closest("[role=listbox], .multiselect, #model, #devices, #device_spec") || field.getAttribute("role") === "listbox" || field.hasAttribute("aria-expanded")) return;
    event.preventDefault();
    const button = [...document.querySelectorAll("button.ask")].find((one) => one.offsetParent !== null);
    if (button) setTimeout(() => button.click(), 60);
  }, true);
  // A file goes to the REST API, as one of any other client does; the form then holds the model that it became.
  function told(words, kind) {
    return Object.assign(document.createElement("p"), { className: "forerun " + kind, textContent: words }).outerHTML;
  }
  async function sent(file) {
    const name = file.name.replace(/[^ -~]/g, "_").slice(-200);
    try {
      const answer = await fetch("/v1/uploads", { method: "POST", headers: { "X-File-Name": name }, body: file });
      const found = await answer.json();
      if (!answer.ok) return { html: told(found.error.charAt(0).toUpperCase() + found.error.slice(1) + ".", "problem") };
      const size = (found.bytes / 2 ** 20).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
      const words = found.name + " (" + size + " MB) is kept for " + found.kept_minutes + " minutes after its last use.";
      return { model: found.model, html: told(words, "faint") };
    } catch {
      return { html: told("The server did not take the file.", "problem") };
    }
  }
  document.addEventListener("change", async (event) => {
    if (!event.target.matches("#upload input[type=file]") || !event.target.files.length) return;
    const [file] = event.target.files;
    window.forerunUpload = await sent(file);
    event.target.value = "";  // the same file may be chosen again
    document.getElementById("uploaded").click();
  });
  // A link names a tab: its button is pressed as soon as it is there.
  window.forerunPress = (tab, tries = 100) => {
    const button = document.getElementById("ask-" + tab);
    if (button) button.click();
    else if (tries) setTimeout(() => window.forerunPress(tab, tries - 1), 50);
  };
  let waiting = false;
  new MutationObserver(() => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; drawNew(); watchTables(); keepAddress(); }, 30);
  }).observe(document.documentElement, { childList: true, subtree: true });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.querySelectorAll(".plot[data-drawn]").forEach(draw);
  });
})();
