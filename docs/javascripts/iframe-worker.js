// The site's search in a hidden frame, for pages of the file system: browsers start no worker there.
// A frame has what the theme's search worker uses: messages both ways, and scripts that load in order.
"use strict";

class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.scope = frame.contentWindow;
    this.scope.postMessage = (data) => this.receive(data);
    this.scope.importScripts = (...urls) => urls.reduce((loaded, next) => loaded.then(() => this.load(next)), Promise.resolve());
    this.ready = this.load(new URL(url, document.baseURI).href);
  }

  load(url) {
    return new Promise((resolve, reject) => {
      const script = this.scope.document.createElement("script");
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${url} cannot be loaded`));
      script.src = url;
      this.scope.document.body.append(script);
    });
  }

  receive(data) {
    const message = new MessageEvent("message", { data });
    this.dispatchEvent(message);
    this.onmessage?.(message);
  }

  postMessage(data) {
    this.ready.then(() => this.scope.dispatchEvent(new this.scope.MessageEvent("message", { data })));
  }
}

window.IFrameWorker = IFrameWorker; // the search worker asks for it by this name
if (location.protocol === "file:") window.Worker = IFrameWorker;
