// Browsers start no workers for pages that are opened from disk. There, the search runs in a hidden frame instead.
if (location.protocol === 'file:') {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement('iframe');
      frame.hidden = true;
      frame.srcdoc = `<script src="${new URL(url, location)}"></script>`;
      this.scope = new Promise((resolve) => {
        frame.addEventListener('load', () => {
          frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent('message', { data }));
          resolve(frame.contentWindow);
        });
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.scope.then((scope) => scope.dispatchEvent(new MessageEvent('message', { data })));
    }
  };
}
