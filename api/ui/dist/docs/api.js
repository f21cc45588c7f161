// The page on which the API is read and tried: Swagger UI over the document that this server answers to.
const root = new URL('..', document.currentScript.src);
const system = matchMedia('(prefers-color-scheme: light)');

function theme() { // as the console has it
  document.documentElement.classList.toggle('dark-mode', (localStorage.getItem('theme') ?? (system.matches ? 'light' : 'dark')) === 'dark');
}
system.addEventListener('change', theme);
addEventListener('storage', theme);
theme();

// Names for fields that Swagger UI leaves without, and a way by keyboard into code that is wider than its box.
function name() {
  for (const field of document.querySelectorAll('#api :is(select, textarea):not([aria-label])')) {
    if (field.id === 'servers') field.setAttribute('aria-label', 'Server'); // in a label that says nothing
    else if (!field.labels.length) field.setAttribute('aria-label', field.closest('[data-param-name]')?.dataset.paramName ?? 'Body');
  }
  for (const close of document.querySelectorAll('#api .close-modal:not([aria-label])')) close.setAttribute('aria-label', 'Close');
  for (const code of document.querySelectorAll('#api pre.microlight:not([tabindex])')) code.tabIndex = 0;
}
new MutationObserver(name).observe(document.getElementById('api'), { childList: true, subtree: true });

SwaggerUIBundle({
  url: new URL('api/v1/openapi.yaml', root).href,
  dom_id: '#api',
  deepLinking: true,
  docExpansion: 'none', // the tags fit a screen
  filter: true,
  displayOperationId: true, // the names of the clients' methods and of the commands
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null, // which would tell another site the address of this one
});
